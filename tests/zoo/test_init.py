"""Initial scales, measured; and the step-0 laws that follow from them (facts, sections A0 and F)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig
from gradtui.presets.parts import FEEDFORWARDS, INITS
from gradtui.zoo.model import Layer, Transformer

WIDE = {"layers": 3, "width": 128, "heads": 4, "context": 32}


def model(init: str, **parts) -> Transformer:
    return Transformer(ModelConfig(**{**WIDE, "init": init, **parts}), seed=0)


def rms(x: Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


EXPECTED = {
    "xavier": lambda n_out, n_in, branch_out: math.sqrt(2 / (n_in + n_out)),
    "fan_in": lambda n_out, n_in, branch_out: math.sqrt(1 / n_in),
    "gpt2": lambda n_out, n_in, branch_out: 0.02,
    "gpt2_scaled": lambda n_out, n_in, branch_out: 0.02 / (math.sqrt(6) if branch_out else 1),
}


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("feedforward", FEEDFORWARDS)
def test_every_matrix_has_the_std_of_its_formula(init, feedforward):
    matrices = 0
    for name, module in model(init, feedforward=feedforward).named_modules():
        if not isinstance(module, nn.Linear):
            continue
        writes = name.endswith((".branch.out", ".branch.shared.out"))
        expected = EXPECTED[init](*module.weight.shape, writes)
        assert float(module.weight.detach().std()) == pytest.approx(expected, rel=0.03), name
        assert abs(float(module.weight.detach().mean())) < 0.05 * expected, name
        assert module.bias is None or not module.bias.any(), name
        matrices += 1
    assert matrices >= 3 * 4 + 1


@pytest.mark.parametrize(("init", "expected"), [("xavier", 2.0), ("fan_in", 1.0), ("gpt2", 0.02 * 2**0.5)])
def test_the_stream_starts_at_the_stated_rms(init, expected):
    x_BTD = model(init).embedding(torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(0)))
    assert rms(x_BTD) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("init", INITS)
def test_norms_start_as_the_identity_gain(init):
    gains = [p for name, p in model(init, norm="layernorm").named_parameters() if name.endswith("gamma")]
    shifts = [p for name, p in model(init, norm="layernorm").named_parameters() if name.endswith("beta")]
    assert len(gains) == len(shifts) == 7
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in gains)
    assert not any(shift.any() for shift in shifts)


def test_gpt2_scaled_is_gpt2_with_branch_outputs_divided_by_root_2l():
    plain, scaled = model("gpt2").state_dict(), model("gpt2_scaled").state_dict()
    for name, weight in plain.items():
        factor = 1 / math.sqrt(6) if name.endswith(".branch.out.weight") else 1.0
        torch.testing.assert_close(scaled[name], weight * factor)


def feedforward_only_streams(config: ModelConfig, seed: int) -> list[Tensor]:
    """x_0 … x_L of a stack whose mixers are left out, with gradients of a random linear loss kept."""
    net = Transformer(config, seed)
    generator = torch.Generator().manual_seed(seed)
    x_BTD = torch.randn(4, 32, config.width, generator=generator).requires_grad_()
    streams = [x_BTD]
    for layer in net.layers:
        assert isinstance(layer, Layer)
        x_BTD = layer.feedforward(x_BTD)
        x_BTD.retain_grad()
        streams.append(x_BTD)
    out = x_BTD if net.final_norm is None else net.final_norm(x_BTD)
    out.backward(torch.randn(out.shape, generator=generator))
    return streams


def test_pre_norm_law_rms_times_gradient_is_constant_in_depth():
    """ReLU branches at fan-in init: RMS(x_k) = √(1 + k/2), and RMS(x_l) · ‖g_l‖ does not depend on l."""
    config = ModelConfig(layers=12, width=128, heads=4, context=32, norm="rmsnorm", init="fan_in")
    products, ratios = [], []
    for seed in range(2):
        streams = feedforward_only_streams(config, seed)
        for index in (1, 4, 12):
            assert rms(streams[index]) == pytest.approx(math.sqrt(1 + index / 2), rel=0.08)
        gradients = [float(stream.grad.norm()) for stream in streams if stream.grad is not None]
        assert len(gradients) == 13
        products.append([rms(x) * g for x, g in zip(streams, gradients, strict=True)])
        ratios.append(gradients[0] / gradients[-1])
    for product in products:
        assert max(product) / min(product) < 1.16
    assert sum(ratios) / 2 == pytest.approx(math.sqrt(1 + 12 / 2), rel=0.1)


def test_post_norm_is_flat_at_step_zero_with_relu_and_grows_towards_the_input_with_swiglu():
    """Collapse is not there at initialisation: it is an effect of training (facts, section E, item 1)."""
    for feedforward, low, high in (("relu", 0.5, 2.0), ("swiglu", 3.0, 30.0)):
        config = ModelConfig(
            layers=12, width=128, heads=4, context=32, topology="post", init="fan_in", feedforward=feedforward
        )
        streams = feedforward_only_streams(config, seed=0)
        assert streams[0].grad is not None
        assert streams[-1].grad is not None
        assert low < float(streams[0].grad.norm() / streams[-1].grad.norm()) < high
        assert all(rms(stream) == pytest.approx(1, abs=1e-3) for stream in streams[1:])
