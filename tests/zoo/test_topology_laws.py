"""Laws of each topology at step 0: what scale does not change, and how the stream grows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from zoo.parts import legal
from zoo.stacks import TINY, double, rms, shares, stream, tokens

from gradtui.presets import ModelConfig
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Layer, Transformer


def product(parameter: Tensor) -> float:
    """⟨W, ∂L/∂W⟩ relative to ‖W‖ ‖∂L/∂W‖."""
    assert parameter.grad is not None
    return float((parameter.detach() * parameter.grad).sum() / (parameter.detach().norm() * parameter.grad.norm()))


@pytest.mark.parametrize("topology", ["sandwich", "olmo2"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_norm_behind_a_branch_makes_its_last_matrix_blind_to_scale(topology, norm):
    """⟨W, ∂W⟩ = 0 for W_O, W_V and W_down, and not for the same matrices under Pre."""
    model, pre = (
        double(ModelConfig(layers=2, width=16, heads=2, context=12, norm=norm, topology=name, eps=TINY))
        for name in (topology, "pre")
    )
    for each in (model, pre):
        each.loss(tokens()).backward()
    for layer in model.layers:
        assert isinstance(layer, Layer)
        for branch in (layer.mixer.branch, layer.feedforward.branch):
            assert abs(product(branch.out.weight)) < 1e-13  # type: ignore[union-attr]
        qkv = layer.mixer.branch.qkv.weight
        values, gradient = qkv.detach()[32:], qkv.grad[32:]  # type: ignore[index]
        assert abs(float((values * gradient).sum())) < 1e-13
    assert all(abs(product(layer.feedforward.branch.out.weight)) > 1e-4 for layer in pre.layers)


@pytest.mark.parametrize("qk_norm", ["per_head", "full"])
def test_normed_queries_and_keys_make_their_matrices_blind_to_scale(qk_norm):
    """⟨W, ∂W⟩ = 0: head by head where each head is normed, over all heads where all are normed together."""
    model = double(ModelConfig(layers=2, width=16, heads=2, context=12, qk_norm=qk_norm, eps=TINY))
    model.loss(tokens()).backward()
    for layer in model.layers:
        weight, gradient = layer.mixer.branch.qkv.weight.detach(), layer.mixer.branch.qkv.weight.grad
        by_head = (weight * gradient)[:32].reshape(2, 2, -1).sum(-1)  # (q or k, head)
        if qk_norm == "per_head":
            assert by_head.abs().max() < 1e-15
        else:
            assert by_head.sum(1).abs().max() < 1e-15
            assert by_head.abs().max() > 1e-9
        assert abs(float((weight * gradient)[32:].sum())) > 1e-9


@pytest.mark.parametrize("norm", ["dyt", "derf"])
def test_elementwise_norms_are_not_blind_to_scale(norm):
    model = double(ModelConfig(layers=2, width=16, heads=2, context=12, norm=norm))
    model.loss(tokens()).backward()
    writers = [p for name, p in model.named_parameters() if name.startswith("embedding") or ".branch.out." in name]
    assert abs(sum(float((p.detach() * p.grad).sum()) for p in writers if p.grad is not None)) > 1e-4


WIDE = {"width": 128, "heads": 4, "context": 32, "init": "fan_in", "norm": "rmsnorm"}


def feedforward_stack(topology: str, layers: int, seed: int = 0, **parts) -> tuple[Transformer, list[float]]:
    """A stack whose mixers are left out, and RMS(x) after 0 … L feed-forwards, for a stream that begins at 1."""
    config = legal(**{**WIDE, "topology": topology, "layers": layers, **parts})
    model = Transformer(config, seed)
    x_BTD = torch.randn(4, 32, 128, generator=torch.Generator().manual_seed(seed))
    state = type(model.layers[0].feedforward).enter(x_BTD, config)
    sizes = [rms(stream(state))]
    for layer in model.layers:
        assert isinstance(layer, Layer)
        state = layer.feedforward(state)
        sizes.append(rms(stream(state)))
    return model, sizes


@pytest.mark.parametrize("topology", ["sandwich", "olmo2"])
def test_with_normed_outputs_the_stream_is_the_root_of_the_number_of_sublayers(topology):
    _, sizes = feedforward_stack(topology, 12)
    for k, size in enumerate(sizes):
        assert size == pytest.approx(math.sqrt(1 + k), rel=0.08)


def test_layernorm_scaling_makes_the_stream_grow_like_the_harmonic_numbers():
    _, sizes = feedforward_stack("lns", 12)
    for k, size in enumerate(sizes):
        harmonic = sum(1 / layer for layer in range(1, k + 1))
        assert size == pytest.approx(math.sqrt(1 + harmonic / 2), rel=0.05)


@pytest.mark.parametrize("topology", ["deepnorm", "keel", "residual_dual"])
def test_with_a_norm_on_the_trunk_the_stream_has_rms_one(topology):
    init = {"init": "xavier"} if topology == "deepnorm" else {}
    _, sizes = feedforward_stack(topology, 12, **init)
    assert sizes[1:] == pytest.approx([1.0] * 12, abs=1e-4)


def test_keels_trunk_keeps_nearly_all_of_the_gradient_where_post_loses_a_third_a_sublayer():
    """α/√(α² + 1) a sublayer against 1/√(1 + v), v = ½ the variance that a ReLU branch adds."""
    losses = {}
    for topology in ("keel", "post"):
        config = legal(**{**WIDE, "topology": topology, "layers": 12})
        tokens_BS = load_corpus("stdlib", context=32, seed=0).batch(0, 4, 32, 0)
        found = shares(Transformer(config, 0), tokens_BS)
        losses[topology] = [found[f"layers.{layer}.feedforward"] for layer in range(1, 12)]
    # γ = 1 and RMS(x) ≈ 1 before the sum, so the norm divides by what the branch has added; Keel's α cancels.
    assert min(losses["keel"]) > 0.98
    assert max(losses["post"]) < 0.95


def olmo_products(qk_norm: str, seed: int) -> float:
    """RMS(x_l) · ‖g_l‖ at the input over that at the output of an OLMo 2 stack."""
    config = legal(**{**WIDE, "topology": "olmo2", "layers": 12, "qk_norm": qk_norm})
    model = Transformer(config, seed)
    x_BTD = torch.randn(4, 32, 128, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    state, streams = x_BTD, [x_BTD]
    for layer in model.layers:
        state = layer(state)
        state.retain_grad()
        streams.append(state)
    assert model.final_norm is not None
    logits_BTV = model.head(model.final_norm(state))
    targets = torch.randint(256, (4, 32), generator=torch.Generator().manual_seed(seed))
    nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets.flatten()).backward()
    products = [rms(x) * float(x.grad.norm()) for x in streams]  # type: ignore[union-attr]
    return products[0] / products[-1]


def test_an_output_norm_needs_normed_queries_and_keys():
    """Without them logits grow with the square of the stream, and the gradient rises towards the input."""
    without = sum(olmo_products("none", seed) for seed in range(2)) / 2
    with_norms = sum(olmo_products("full", seed) for seed in range(2)) / 2
    assert without > 3
    assert with_norms < 1.5


def test_hybrid_norm_norms_queries_keys_and_values_of_each_head():
    attention = Transformer(legal(topology="hybrid_norm"), 0).layers[0].mixer.branch
    kept: dict[str, Tensor] = {}
    for name in "qkv":
        getattr(attention, f"{name}_norm").register_forward_hook(lambda _m, _a, out, n=name: kept.update({n: out}))
    attention(3 * torch.randn(2, 12, 16))
    for value in kept.values():
        assert value.shape == (2, 2, 12, 8)
        torch.testing.assert_close(value.square().mean(-1), torch.ones(2, 2, 12), rtol=1e-3, atol=1e-3)
    assert len(kept) == 3


@pytest.mark.parametrize("qk_norm", ["per_head", "full"])
def test_qk_norm_bounds_the_logits_whatever_the_stream(qk_norm):
    """Then attention does not care how large its input is, but for its values."""
    attention = Transformer(legal(qk_norm=qk_norm, eps=1e-30), 0).double().layers[0].mixer.branch
    x_BTD = torch.randn(2, 12, 16, dtype=torch.float64)
    torch.testing.assert_close(attention(1000 * x_BTD), 1000 * attention(x_BTD), rtol=1e-9, atol=1e-9)


def last_feedforward_gradient(topology: str, layers: int, seed: int) -> float:
    """‖∂L/∂W₂‖ of the last layer, whose mixers are left out, for random targets."""
    config = legal(**{**WIDE, "topology": topology, "layers": layers, "norm": "layernorm"})
    model = Transformer(config, seed)
    generator = torch.Generator().manual_seed(seed)
    x_BTD = torch.randn(4, 32, 128, generator=generator)
    for layer in model.layers:
        x_BTD = layer.feedforward(x_BTD)
    x_BTD = x_BTD if model.final_norm is None else model.final_norm(x_BTD)
    targets = torch.randint(256, (4 * 32,), generator=generator)
    nn.functional.cross_entropy(model.head(x_BTD).flatten(0, 1), targets).backward()
    gradient = model.layers[-1].feedforward.branch.out.weight.grad
    return float(gradient.norm())


@pytest.mark.parametrize(("topology", "low", "high"), [("post", -0.1, 0.25), ("pre", -0.5, -0.3)])
def test_the_last_gradient_falls_with_depth_in_pre_ln_and_not_in_post_ln(topology, low, high):
    """Xiong et al. 2020, theorem 1: O(1) in the number of layers under Post, O(1/√L) under Pre."""
    depths = (3, 6, 12, 24)
    logs = [math.log(sum(last_feedforward_gradient(topology, L, seed) for seed in range(2))) for L in depths]
    slope = torch.linalg.lstsq(
        torch.tensor([[math.log(L), 1.0] for L in depths]), torch.tensor(logs)[:, None]
    ).solution[0]
    assert low < float(slope) < high


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_a_matrix_that_is_blind_to_scale_has_a_gradient_that_shrinks_as_it_grows(factor):
    """∇L(cW) = ∇L(W)/c: the larger the weights, the smaller the steps. Not so under Pre."""
    for topology, blind in (("sandwich", True), ("pre", False)):
        config = ModelConfig(layers=2, width=16, heads=2, context=12, topology=topology, eps=TINY)
        gradients = []
        for c in (1.0, factor):
            model = double(config)
            weight = model.layers[1].feedforward.branch.out.weight
            weight.data *= c
            model.loss(tokens()).backward()
            gradients.append(weight.grad)
        assert torch.allclose(gradients[1], gradients[0] / factor, rtol=1e-9, atol=1e-15) == blind
