"""Blocks of other libraries, given our weights: what the tests against them share."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig
from gradtui.zoo.model import Layer

BATCH, TIME, WIDTH, HEADS, HIDDEN = 2, 9, 32, 4, 96
K = WIDTH // HEADS
SWIGLU = HIDDEN * 2 // 3
TOLERANCE = 1e-10
LOOSE = 1e-5  # for oracles whose norms compute in float32 whatever they are given


@dataclass(frozen=True)
class Copy:
    """One of our parameters: theirs of these names, one above the other; transposed; as 1 + w."""

    names: tuple[str, ...]
    transpose: bool = False
    plus: float = 0.0

    def stack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        found = torch.cat([tensors[name] for name in self.names])
        return found.T if self.transpose else found


def theirs(*names: str, transpose: bool = False, plus: float = 0.0) -> Copy:
    return Copy(names, transpose, plus)


def assert_same(
    ours: nn.Module,
    oracle: nn.Module,
    copies: Mapping[str, Copy],
    call: Callable[[Tensor], Tensor],
    tolerance: float = TOLERANCE,
) -> None:
    """Copy random weights of the oracle's into ours, then compare outputs and every gradient.

    Our parameters that have no counterpart must be biases; they are 0.
    """
    for parameter in oracle.parameters():
        nn.init.normal_(parameter, std=0.3)
    weights = dict(oracle.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if name in copies:
                parameter.copy_(copies[name].stack(weights) + copies[name].plus)
            else:
                assert name.endswith(("bias", "beta")), f"{name} has no counterpart"
                parameter.zero_()
    used = {name for copy in copies.values() for name in copy.names}
    assert used == set(weights), "every weight of the oracle's has a counterpart"
    x = torch.randn(BATCH, TIME, WIDTH)
    g = torch.randn(BATCH, TIME, WIDTH)
    mine, yours = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = ours(mine), call(yours)
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    a.backward(g)
    b.backward(g)
    torch.testing.assert_close(mine.grad, yours.grad, rtol=tolerance, atol=tolerance)
    gradients = {name: weight.grad for name, weight in weights.items()}
    for name, parameter in ours.named_parameters():
        if name in copies:
            expected = copies[name].stack(gradients)  # type: ignore[arg-type]
            torch.testing.assert_close(parameter.grad, expected, rtol=tolerance, atol=tolerance)


def layer(**parts) -> Layer:
    return Layer(ModelConfig(**{"width": WIDTH, "heads": HEADS, "hidden": HIDDEN, "context": TIME, **parts}))


def causal() -> Tensor:
    """An additive mask (1, 1, T, T) that hides the future."""
    return torch.full((TIME, TIME), torch.finfo(torch.float64).min).triu(1)[None, None]


def unrotated() -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions that rotate nothing: (1, T, K)."""
    return torch.ones(1, TIME, K), torch.zeros(1, TIME, K)


def attention(prefix: str = "self_attn.") -> dict[str, Copy]:
    return {
        "mixer.branch.qkv.weight": theirs(*(f"{prefix}{name}_proj.weight" for name in "qkv")),
        "mixer.branch.out.weight": theirs(f"{prefix}o_proj.weight"),
    }


def gated() -> dict[str, Copy]:
    pairs = {"gate": "gate_proj", "up": "up_proj", "out": "down_proj"}
    return {f"feedforward.branch.{a}.weight": theirs(f"mlp.{b}.weight") for a, b in pairs.items()}


def of_transformers(model: str) -> types.ModuleType:
    """transformers' module of a model, or a skip."""
    pytest.importorskip("transformers")
    return pytest.importorskip(f"transformers.models.{model}.modeling_{model}")


def config_of(kind: str, **more) -> object:
    transformers = pytest.importorskip("transformers")
    common = {
        "hidden_size": WIDTH,
        "intermediate_size": SWIGLU,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": 2,
        "head_dim": K,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attn_implementation": "eager",
    }
    return getattr(transformers, kind)(**{**common, **more})
