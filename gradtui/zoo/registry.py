"""Every part a preset can pick, by name. Torch-free, so that presets are checked without loading torch.

A new norm, topology, mixer, feed-forward, init or optimizer is one entry here and one class or function
where `target` points; `resolve` imports it when a model is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A named part: where it lives ("module:attribute"), its formula, and what to call it on screen."""

    target: str
    title: str
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Topology(Part):
    """How a norm and a residual branch are wired. `sketch` is one sublayer of the diagram."""

    final_norm: bool = False
    norm_on_trunk: bool = False


NORMS: dict[str, Part] = {
    "layernorm": Part("gradtui.zoo.norms:LayerNorm", "LayerNorm", "(x − μ) / √(σ² + ε) · γ + β"),
    "rmsnorm": Part("gradtui.zoo.norms:RMSNorm", "RMSNorm", "x / √(mean(x²) + ε) · γ"),
    "none": Part("gradtui.zoo.norms:NoNorm", "no norm", "x"),
}

TOPOLOGIES: dict[str, Topology] = {
    "post": Topology("gradtui.zoo.topologies:Post", "Post", "x ← N(x + f(x))", norm_on_trunk=True),
    "pre": Topology("gradtui.zoo.topologies:Pre", "Pre", "x ← x + f(N(x))", final_norm=True),
}

MIXERS: dict[str, Part] = {
    "attention": Part("gradtui.zoo.mixers:Attention", "attention", "softmax(QKᵀ/√d) V, causal"),
}

FEEDFORWARDS: dict[str, Part] = {
    "relu": Part("gradtui.zoo.feedforward:ReLU", "ReLU", "W₂ relu(W₁x)"),
    "gelu": Part("gradtui.zoo.feedforward:GELU", "GELU", "W₂ gelu(W₁x)"),
    "swiglu": Part("gradtui.zoo.feedforward:SwiGLU", "SwiGLU", "W₂ (silu(W_g x) ⊙ W₁x)"),
}

INITS: dict[str, Part] = {
    "xavier": Part("gradtui.zoo.init:xavier", "Xavier", "N(0, 2/(n_in + n_out))"),
    "fan_in": Part("gradtui.zoo.init:fan_in", "fan-in", "N(0, 1/n_in)"),
    "gpt2": Part("gradtui.zoo.init:gpt2", "GPT-2", "N(0, 0.02²)"),
    "gpt2_scaled": Part("gradtui.zoo.init:gpt2_scaled", "GPT-2 scaled", "N(0, 0.02²), branch outputs ÷ √(2L)"),
}

OPTIMIZERS: dict[str, Part] = {
    "adamw": Part("gradtui.zoo.optimizers:adamw", "AdamW"),
    "sgd": Part("gradtui.zoo.optimizers:sgd", "SGD"),
}

SCHEDULES: dict[str, Part] = {
    "constant": Part("gradtui.zoo.optimizers:constant", "constant"),
    "cosine": Part("gradtui.zoo.optimizers:cosine", "cosine"),
}


def resolve(part: Part) -> Any:
    """The class or function behind a registry entry."""
    module, _, attribute = part.target.partition(":")
    return getattr(import_module(module), attribute)
