"""The model: every combination of parts trains, one seed is one model, and sites cover it exactly once."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from zoo.parts import SMALL, VARIATIONS, legal

from gradtui.presets import ModelConfig, TrainingConfig
from gradtui.presets.parts import FEEDFORWARDS, INITS, NORMS, OPTIMIZERS, TOPOLOGIES, resolve
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer


def small(**parts) -> ModelConfig:
    return ModelConfig(**{**SMALL, **parts})


def tokens(batch: int = 2, seed: int = 0) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(0, batch, 12, seed)


def train(config: ModelConfig, steps: int = 10, *, seed: int = 0, optimizer: str = "adamw") -> list[float]:
    """The losses of a bare loop."""
    training = TrainingConfig(lr=1e-2, optimizer=optimizer)
    model = Transformer(config, seed)
    corpus = load_corpus("stdlib", context=config.context, seed=seed)
    step_taker = resolve(OPTIMIZERS[optimizer])(model.parameters(), training)
    losses = []
    for step in range(steps):
        loss = model.loss(corpus.batch(step, 4, config.context, seed))
        step_taker.zero_grad()
        loss.backward()
        step_taker.step()
        model.after_step()
        losses.append(loss.item())
    return losses


# Each part has its own test elsewhere; these few are combined in every way.
COMBINATIONS = list(
    itertools.product(("layernorm", "rmsnorm", "none"), ("post", "pre"), ("relu", "gelu", "swiglu"), INITS)
)


@pytest.mark.parametrize(("norm", "topology", "feedforward", "init"), COMBINATIONS)
def test_every_combination_of_parts_trains_and_repeats_exactly(norm, topology, feedforward, init):
    config = small(norm=norm, topology=topology, feedforward=feedforward, init=init)
    losses = train(config)
    assert all(math.isfinite(loss) for loss in losses)
    assert losses == train(config), "one seed is one run, to the last bit"
    assert losses != train(config, seed=1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_optimizer_learns_something(optimizer, topology):
    losses = train(legal(topology=topology), steps=40, optimizer=optimizer)
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("name", [name for name in VARIATIONS if name.split()[0] in ("mixer", "feedforward")])
def test_every_branch_ends_in_a_matrix_called_out(name):
    """The scaled initialisation finds a branch's last matrix by this name."""
    layer = Transformer(VARIATIONS[name], seed=0).layers[0]
    for sublayer in (layer.mixer, layer.feedforward):
        assert isinstance(sublayer.branch.out, nn.Linear)
        assert sublayer.branch.out.out_features == SMALL["width"]


def branch_weights(config: ModelConfig) -> dict[str, Tensor]:
    model = Transformer(config, seed=7)
    return {name: value for name, value in model.state_dict().items() if "norm" not in name}


@pytest.mark.parametrize("init", INITS)
def test_norm_and_topology_do_not_change_the_branch_weights(init):
    """But for the two topologies whose papers scale the weights themselves."""
    reference = branch_weights(small(init=init))
    assert "layers.1.mixer.branch.qkv.weight" in reference
    wires = [name for name in TOPOLOGIES if name not in ("deepnorm", "ngpt")]
    for norm, topology in itertools.product(NORMS, wires):
        others = branch_weights(small(init=init, norm=norm, topology=topology))
        assert reference.keys() <= others.keys()
        assert all(torch.equal(reference[name], others[name]) for name in reference)
    scaled = branch_weights(small(init=init, topology="deepnorm"))
    assert not torch.equal(
        scaled["layers.0.mixer.branch.out.weight"], reference["layers.0.mixer.branch.out.weight"]
    )


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


def test_more_tokens_than_the_context_are_refused():
    model = Transformer(small(), seed=0)
    model(torch.zeros(1, 12, dtype=torch.int64))
    model(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="13 tokens are more than the context of 12"):
        model(torch.zeros(1, 13, dtype=torch.int64))


def test_swiglu_costs_as_many_parameters_as_relu():
    counts = {
        name: sum(p.numel() for p in Transformer(small(width=64, feedforward=name), seed=0).parameters())
        for name in FEEDFORWARDS
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


def layernorm_and_its_centred_twin(topology: str) -> tuple[Transformer, Transformer]:
    """A LayerNorm model, and an RMSNorm one of the same weights, but centred where they write to the stream."""
    layernorm = Transformer(small(norm="layernorm", topology=topology, layers=3), seed=0).double()
    rmsnorm = Transformer(small(norm="rmsnorm", topology=topology, layers=3), seed=0).double()
    with torch.no_grad():
        for embedding in (rmsnorm.embedding.token, rmsnorm.embedding.position):
            embedding.weight -= embedding.weight.mean(dim=1, keepdim=True)
        for name, module in rmsnorm.named_modules():
            if name.endswith(".branch.out"):
                assert isinstance(module, nn.Linear)
                module.weight -= module.weight.mean(dim=0, keepdim=True)
                module.bias -= module.bias.mean()
    return layernorm, rmsnorm


def test_pre_layernorm_is_pre_rmsnorm_of_centred_writers():
    """Jiang et al. 2023: centre all that writes to the stream, swap the norm, get the same function."""
    layernorm, rmsnorm = layernorm_and_its_centred_twin("pre")
    tokens_BT = tokens()[:, :-1]
    torch.testing.assert_close(rmsnorm(tokens_BT), layernorm(tokens_BT), rtol=1e-10, atol=1e-10)


def test_post_layernorm_is_not_once_gains_and_shifts_have_moved():
    """There γ and β write to the stream, so that centring the branches is not enough."""
    layernorm, rmsnorm = layernorm_and_its_centred_twin("post")
    norms = [dict(model.named_parameters()) for model in (layernorm, rmsnorm)]
    with torch.no_grad():
        for name, gamma in norms[1].items():
            if name.endswith("gamma"):
                factor = 1 + 0.3 * torch.randn(gamma.shape, generator=torch.Generator().manual_seed(1)).double()
                gamma *= factor
                norms[0][name].mul_(factor)
    tokens_BT = tokens()[:, :-1]
    assert (rmsnorm(tokens_BT) - layernorm(tokens_BT)).abs().max() > 0.01
