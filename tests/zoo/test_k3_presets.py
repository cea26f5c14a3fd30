"""Kimi K3's presets: routed and connected as the report says, and showing what they are there to show."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import torch
from torch import Tensor

from gradtui.presets import KDAConfig, ModelConfig, MoEConfig, Preset, load_preset, shipped_directory
from gradtui.presets.parts import OPTIMIZERS, resolve
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.kda import KDA
from gradtui.zoo.mla import MLA
from gradtui.zoo.model import Transformer
from gradtui.zoo.moe import LatentMoE, SiTUGLU
from gradtui.zoo.topologies.depth_attention import AttnRes

NAMES = ["k3-latent-moe", "k3-latent-moe-no-norm", "k3-latent-moe-64", "kimi-k3-mini"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As a lane trains; several threads only wait for each other at these sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def preset(name: str) -> Preset:
    return load_preset(shipped_directory() / f"{name}.toml")


def train(config: ModelConfig, name: str, steps: int) -> tuple[Transformer, list[float]]:
    training = preset(name).training
    model = Transformer(config, 0)
    corpus = load_corpus("stdlib", context=config.context, seed=0)
    optimizer = resolve(OPTIMIZERS[training.optimizer])(model.parameters(), training)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model.loss(corpus.batch(step, 4, config.context, 0))
        loss.backward()
        optimizer.step()
        model.after_step()
        losses.append(loss.item())
    return model, losses


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_trains_and_repeats_itself_to_the_last_bit(name):
    config = msgspec.structs.replace(preset(name).model, context=32)
    _, losses = train(config, name, 2)
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses == train(config, name, 2)[1]


def test_sixteen_of_896_experts_are_routed_and_the_norm_is_all_that_differs():
    with_norm, without = preset("k3-latent-moe"), preset("k3-latent-moe-no-norm")
    for one in (with_norm, without):
        assert (one.model.moe.experts, one.model.moe.active, one.model.moe.shared) == (896, 16, 2)
    switched = msgspec.structs.replace(with_norm.model.moe, latent_norm=False)
    assert msgspec.structs.replace(with_norm.model, moe=switched) == without.model
    assert with_norm.training == without.training
    a, b = (Transformer(one.model, 0).state_dict() for one in (with_norm, without))
    assert {name for name in a if name not in b} == {f"layers.{i}.feedforward.branch.norm.gamma" for i in range(4)}
    assert all(torch.equal(a[name], b[name]) for name in b)


def test_the_scale_of_u_spreads_over_tokens_and_only_the_norm_keeps_it_from_the_way_up():
    for name in ("k3-latent-moe", "k3-latent-moe-no-norm"):
        model, _ = train(preset(name).model, name, 1)
        readings = [reading for site, reading in model.readings().items() if site.endswith("feedforward")]
        assert len(readings) == 4
        for reading in readings:
            low, _, high = reading["routed_rms"].tolist()
            assert high > 2 * low
            low, _, high = reading["latent_rms"].tolist()
            if name == "k3-latent-moe":
                assert low == pytest.approx(1, abs=0.01)
                assert high == pytest.approx(1, abs=0.01)
            else:
                assert high > 2 * low


def test_quantile_balancing_evens_the_load_out_with_the_second_step():
    name = "k3-latent-moe"
    before, after = (
        [reading["load"].item() for reading in train(preset(name).model, name, steps)[0].readings().values()]
        for steps in (1, 2)
    )
    assert sum(after) < 0.75 * sum(before)


def test_the_mini_model_is_wired_as_the_reports_block():
    model = Transformer(preset("kimi-k3-mini").model, 0)
    mixers = [type(layer.mixer.branch) for layer in model.layers]
    assert mixers == [KDA, KDA, KDA, MLA] * 2
    assert [type(layer.feedforward.branch) for layer in model.layers] == [SiTUGLU, *[LatentMoE] * 7]
    assert all(isinstance(sub, AttnRes) for layer in model.layers for sub in (layer.mixer, layer.feedforward))
    assert model.embedding.position is None
    model.loss(load_corpus("stdlib", context=64, seed=0).batch(0, 2, 64, 0))
    sources = [len(layer.feedforward.readings["depth"]) for layer in model.layers]
    assert sources == [2, 2, 3, 3, 4, 4, 5, 5], "the embedding and one source for every two layers"


def test_the_order_of_bytes_reaches_the_mini_model_without_a_position_encoding():
    model = Transformer(preset("kimi-k3-mini").model, 0)
    one = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    other = torch.tensor([[5, 3, 1, 7, 2, 6, 4, 8]])
    assert not torch.allclose(model(one)[:, -1], model(other)[:, -1])


@pytest.mark.parametrize(
    "parts",
    [
        {"feedforward": "latent_moe", "moe": MoEConfig(experts=24, active=3)},
        {"mixer": ("kda", "mla"), "kda": KDAConfig(conv=2), "feedforward": "latent_moe", "topology": "attn_res"},
    ],
)
def test_no_position_sees_the_future_through_experts_memory_or_depth(parts):
    config = ModelConfig(layers=2, width=16, heads=2, context=40, norm="rmsnorm", **parts)
    model = Transformer(config, 0).double()
    tokens_BT = load_corpus("stdlib", context=40, seed=0).batch(0, 3, 40, 0)[:, :40]
    changed_BT = tokens_BT.clone()
    changed_BT[:, 21:] = (changed_BT[:, 21:] + 1) % 256
    a, b = model(tokens_BT), model(changed_BT)
    torch.testing.assert_close(a[:, :21], b[:, :21], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(a[:, 21:], b[:, 21:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_weights_give_finite_outputs_and_gradients(dtype):
    config = msgspec.structs.replace(preset("kimi-k3-mini").model, layers=4, context=32)
    model = Transformer(config, 0).to(dtype)
    loss = model.loss(load_corpus("stdlib", context=32, seed=0).batch(0, 2, 32, 0))
    loss.backward()
    assert loss.isfinite()
    grads: list[Tensor] = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)
