"""The model: every combination of parts trains, one seed is one model, and sites cover it exactly once."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig, TrainingConfig
from gradtui.zoo import registry
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer
from gradtui.zoo.registry import resolve

SMALL = {"layers": 2, "width": 16, "heads": 2, "context": 12}


def small(**parts) -> ModelConfig:
    return ModelConfig(**{**SMALL, **parts})


def tokens(batch: int = 2, seed: int = 0) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(0, batch, 12, seed)


def train(config: ModelConfig, steps: int = 10, *, seed: int = 0, optimizer: str = "adamw") -> list[float]:
    """The losses of a bare loop."""
    training = TrainingConfig(lr=1e-2, optimizer=optimizer)
    model = Transformer(config, seed)
    corpus = load_corpus("stdlib", context=config.context, seed=seed)
    step_taker = resolve(registry.OPTIMIZERS[optimizer])(model.parameters(), training)
    losses = []
    for step in range(steps):
        loss = model.loss(corpus.batch(step, 4, config.context, seed))
        step_taker.zero_grad()
        loss.backward()
        step_taker.step()
        losses.append(loss.item())
    return losses


ALL_PARTS = [
    registry.NORMS,
    registry.TOPOLOGIES,
    registry.MIXERS,
    registry.FEEDFORWARDS,
    registry.INITS,
    registry.OPTIMIZERS,
    registry.SCHEDULES,
]
COMBINATIONS = list(
    itertools.product(registry.NORMS, registry.TOPOLOGIES, registry.MIXERS, registry.FEEDFORWARDS, registry.INITS)
)


@pytest.mark.parametrize("parts", ALL_PARTS)
def test_every_registry_target_resolves_and_is_documented(parts):
    for name, part in parts.items():
        found = resolve(part)
        assert callable(found), name
        assert found.__doc__, f"{part.target} has no docstring"
        assert part.title


@pytest.mark.parametrize(("norm", "topology", "mixer", "feedforward", "init"), COMBINATIONS)
def test_every_combination_of_parts_trains_and_repeats_exactly(norm, topology, mixer, feedforward, init):
    config = small(norm=norm, topology=topology, mixer=mixer, feedforward=feedforward, init=init)
    losses = train(config)
    assert all(math.isfinite(loss) for loss in losses)
    assert losses == train(config), "one seed is one run, to the last bit"
    assert losses != train(config, seed=1)


@pytest.mark.parametrize("optimizer", registry.OPTIMIZERS)
@pytest.mark.parametrize("topology", registry.TOPOLOGIES)
def test_every_optimizer_learns_something(optimizer, topology):
    losses = train(small(topology=topology), steps=40, optimizer=optimizer)
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("mixer", registry.MIXERS)
@pytest.mark.parametrize("feedforward", registry.FEEDFORWARDS)
def test_every_branch_ends_in_a_matrix_called_out(mixer, feedforward):
    """The scaled initialisation finds a branch's last matrix by this name."""
    layer = Transformer(small(mixer=mixer, feedforward=feedforward), seed=0).layers[0]
    for sublayer in (layer.mixer, layer.feedforward):
        assert isinstance(sublayer.branch.out, nn.Linear)
        assert sublayer.branch.out.out_features == SMALL["width"]


def branch_weights(config: ModelConfig) -> dict[str, Tensor]:
    model = Transformer(config, seed=7)
    return {name: value for name, value in model.state_dict().items() if "norm" not in name}


@pytest.mark.parametrize("init", registry.INITS)
def test_norm_and_topology_do_not_change_the_branch_weights(init):
    reference = branch_weights(small(init=init))
    assert "layers.1.mixer.branch.qkv.weight" in reference
    for norm, topology in itertools.product(registry.NORMS, registry.TOPOLOGIES):
        others = branch_weights(small(init=init, norm=norm, topology=topology))
        assert reference.keys() == others.keys()
        assert all(torch.equal(reference[name], others[name]) for name in reference)


def test_a_deeper_model_starts_with_the_same_first_layers():
    shallow, deep = branch_weights(small()), branch_weights(small(layers=4))
    assert all(torch.equal(shallow[name], deep[name]) for name in shallow if not name.startswith("head"))


def test_building_a_model_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = Transformer(small(), seed=0)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    second = Transformer(small(), seed=0)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("norm", registry.NORMS)
@pytest.mark.parametrize("topology", registry.TOPOLOGIES)
def test_sites_partition_the_parameters_in_forward_order(norm, topology):
    model = Transformer(small(norm=norm, topology=topology, layers=3), seed=0)
    sites = model.sites()
    names = [site.name for site, _ in sites]
    expected = ["embedding"]
    expected += [f"layers.{index}.{part}" for index in range(3) for part in ("mixer", "feedforward")]
    has_final_norm = topology == "pre" and norm != "none"
    assert names == [*expected, *(["final_norm"] if has_final_norm else []), "head"]
    owned = [id(parameter) for _, module in sites for parameter in module.parameters()]
    assert len(owned) == len(set(owned))
    assert set(owned) == {id(parameter) for parameter in model.parameters()}
    for site, module in sites:
        assert module is model.get_submodule(site.name)
        assert list(module.parameters()), f"{site.name} has nothing to measure"

    order: list[str] = []
    for site, module in sites:
        module.register_forward_hook(lambda *_, name=site.name: order.append(name))
    model.loss(tokens())
    assert order == names


def test_each_sites_output_is_the_stream_that_leaves_it():
    config = small(layers=3, topology="pre")
    model = Transformer(config, seed=0)
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str):
        def hook(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            inputs[name], outputs[name] = args[0], output

        return hook

    for site, module in model.sites():
        module.register_forward_hook(keep(site.name))
    model(tokens()[:, :-1])
    names = [site.name for site, _ in model.sites()]
    for before, after in itertools.pairwise(names):
        assert inputs[after] is outputs[before]
    streams = {site.stream: site for site, _ in model.sites() if site.stream is not None}
    assert sorted(streams) == [0, 1, 2, 3]
    assert [streams[index].layer for index in range(4)] == [None, 0, 1, 2]
    assert [streams[index].kind for index in range(4)] == ["embedding", *["feedforward"] * 3]


def test_loss_is_the_mean_next_byte_cross_entropy():
    model = Transformer(small(), seed=0).double()
    tokens_BS = tokens(batch=3)
    logits_BTV = model(tokens_BS[:, :-1])
    by_hand = [
        torch.logsumexp(logits_BTV[b, t], 0) - logits_BTV[b, t, tokens_BS[b, t + 1]]
        for b in range(3)
        for t in range(12)
    ]
    torch.testing.assert_close(model.loss(tokens_BS), torch.stack(by_hand).mean(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("topology", registry.TOPOLOGIES)
@pytest.mark.parametrize("mixer", registry.MIXERS)
def test_no_position_sees_the_future(topology, mixer):
    model = Transformer(small(topology=topology, mixer=mixer), seed=0)
    tokens_BT = tokens()[:, :12]
    changed_BT = tokens_BT.clone()
    changed_BT[:, 6:] = (changed_BT[:, 6:] + 1) % 256
    a, b = model(tokens_BT), model(changed_BT)
    assert torch.equal(a[:, :6], b[:, :6])
    assert not torch.equal(a[:, 6:], b[:, 6:])


def test_more_tokens_than_the_context_are_refused():
    model = Transformer(small(), seed=0)
    model(torch.zeros(1, 12, dtype=torch.int64))
    model(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="13 tokens are more than the context of 12"):
        model(torch.zeros(1, 13, dtype=torch.int64))


def test_swiglu_costs_as_many_parameters_as_relu():
    counts = {
        name: sum(p.numel() for p in Transformer(small(width=64, feedforward=name), seed=0).parameters())
        for name in registry.FEEDFORWARDS
    }
    assert counts["swiglu"] == pytest.approx(counts["relu"], rel=0.02)
    assert counts["gelu"] == counts["relu"]


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_pre_norm_model_is_blind_to_the_scale_of_its_stream(norm):
    """Facts, section B: ⟨θ, ∂θ⟩ sums to 0 over all that writes to the stream (Euler; exact at ε = 0)."""
    config = small(norm=norm, topology="pre", eps=1e-300)
    model = Transformer(config, seed=0).double()
    model.loss(tokens()).backward()
    writers = [
        parameter
        for name, parameter in model.named_parameters()
        if name.startswith("embedding") or ".branch.out." in name
    ]
    parts = torch.stack([(w.detach() * w.grad).sum() for w in writers if w.grad is not None])
    assert parts.abs().max() > 1e-4
    assert abs(float(parts.sum())) < 1e-12


def test_pre_layernorm_is_pre_rmsnorm_of_centred_writers():
    """Jiang et al. 2023: centre all that writes to the stream, swap the norm, get the same function."""
    layernorm = Transformer(small(norm="layernorm", topology="pre", layers=3), seed=0).double()
    rmsnorm = Transformer(small(norm="rmsnorm", topology="pre", layers=3), seed=0).double()
    with torch.no_grad():
        for embedding in (rmsnorm.embedding.token, rmsnorm.embedding.position):
            embedding.weight -= embedding.weight.mean(dim=1, keepdim=True)
        for name, module in rmsnorm.named_modules():
            if name.endswith(".branch.out"):
                assert isinstance(module, nn.Linear)
                module.weight -= module.weight.mean(dim=0, keepdim=True)
                module.bias -= module.bias.mean()
    tokens_BT = tokens()[:, :-1]
    torch.testing.assert_close(rmsnorm(tokens_BT), layernorm(tokens_BT), rtol=1e-10, atol=1e-10)
