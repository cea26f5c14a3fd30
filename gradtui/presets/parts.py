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
    """How a norm and a residual branch are wired.

    `final_norm`: the model has a norm after its last layer. `norm_on_trunk`: the stream passes through norms.
    `norm`: "any", or "some" where the wiring means nothing without one, or "none" where it has no place for one.
    `norms_qkv`: attention has an RMSNorm on q, k and v of each head.
    """

    final_norm: bool = False
    norm_on_trunk: bool = False
    norm: str = "any"
    norms_qkv: bool = False


NORMS: dict[str, Part] = {
    "layernorm": Part("gradtui.zoo.norms:LayerNorm", "LayerNorm", "(x − μ) / √(σ² + ε) · γ + β"),
    "rmsnorm": Part("gradtui.zoo.norms:RMSNorm", "RMSNorm", "x / √(mean(x²) + ε) · γ"),
    "dyt": Part("gradtui.zoo.norms:DyT", "DyT", "γ tanh(αx) + β"),
    "derf": Part("gradtui.zoo.norms:Derf", "Derf", "γ erf(αx + s) + β"),
    "none": Part("gradtui.zoo.norms:NoNorm", "no norm", "x"),
}

_WIRES = "gradtui.zoo.topologies"
TOPOLOGIES: dict[str, Topology] = {
    "post": Topology(f"{_WIRES}:Post", "Post", "x ← N(x + f(x))", norm_on_trunk=True),
    "pre": Topology(f"{_WIRES}:Pre", "Pre", "x ← x + f(N(x))", final_norm=True),
    "sandwich": Topology(f"{_WIRES}:Sandwich", "Sandwich", "x ← x + N′(f(N(x)))", final_norm=True, norm="some"),
    "olmo2": Topology(f"{_WIRES}:OutputNorm", "OLMo 2", "x ← x + N(f(x))", final_norm=True, norm="some"),
    "hybrid_norm": Topology(
        f"{_WIRES}:HybridNorm",
        "HybridNorm",
        "x ← x + f(x), q, k, v normed;  x ← N(x) + f(N(x))",
        final_norm=True,
        norm_on_trunk=True,
        norm="some",
        norms_qkv=True,
    ),
    "deepnorm": Topology(
        f"{_WIRES}:DeepNorm", "DeepNorm", "x ← N(αx + f(x)), α = (2L)^¼", norm_on_trunk=True, norm="some"
    ),
    "keel": Topology(f"{_WIRES}:Keel", "Keel", "x ← N′(αx + f(N(x))), α = 2L", norm_on_trunk=True, norm="some"),
    "residual_dual": Topology(
        f"{_WIRES}:ResiDual",
        "ResiDual",
        "y = f(p);  p ← N(p + y), d ← d + y;  x = p + N(d)",
        final_norm=True,
        norm_on_trunk=True,
        norm="some",
    ),
    "mix_ln": Topology(
        f"{_WIRES}:MixLN",
        "Mix-LN",
        "Post in the first L/4 layers, then Pre",
        final_norm=True,
        norm_on_trunk=True,
        norm="some",
    ),
    "lns": Topology(f"{_WIRES}:LayerNormScaling", "LNS", "x ← x + f(N(x)/√ℓ)", final_norm=True, norm="some"),
    "rezero": Topology(f"{_WIRES}:ReZero", "ReZero", "x ← x + αf(x), α = 0 at first", norm="none"),
    "hyper_connections": Topology(
        f"{_WIRES}:HyperConnections", "Hyper-Connections", "X ← A_rᵀX + B f(N(A_mᵀX))", final_norm=True
    ),
    "mhc": Topology(
        f"{_WIRES}:ManifoldHyperConnections",
        "mHC",
        "X ← H_resᵀX + H_post f(N(H_pre X)), H_res doubly stochastic",
        final_norm=True,
    ),
    "attn_res": Topology(
        "gradtui.zoo.depth_attention:AttnRes",
        "AttnRes",
        "h ← Σ αᵢvᵢ, α = softmax(wᵀN(vᵢ));  v ← f(N(h))",
        final_norm=True,
    ),
    "ngpt": Topology(
        "gradtui.zoo.ngpt:NGPT",
        "nGPT",
        "x ← N(x + α(N(f(x)) − x)), N(x) = x/‖x‖",
        norm_on_trunk=True,
        norm="none",
    ),
    "none": Topology(f"{_WIRES}:NoResidual", "no residual", "x ← f(N(x))", final_norm=True),
}

QK_NORMS = ("none", "per_head", "full")
POSITIONS = ("learned", "none")
BALANCINGS = ("quantile", "fixed")

MIXERS: dict[str, Part] = {
    "attention": Part("gradtui.zoo.mixers:Attention", "attention", "softmax(QKᵀ/√d) V, causal"),
    "kda": Part("gradtui.zoo.kda:KDA", "KDA", "S ← (I − βkkᵀ) diag(eᵍ) S + βkvᵀ;  y = W_o(σ(W_g x) ⊙ N(Sᵀq))"),
    "mla": Part("gradtui.zoo.mla:MLA", "gated MLA", "W_o(σ(W_g x) ⊙ softmax(QKᵀ/√d) V), Q, K, V of low rank"),
    "ngpt": Part("gradtui.zoo.ngpt:UnitAttention", "nGPT attention", "softmax(√d (s N(q))·(s N(k))) V, causal"),
}

FEEDFORWARDS: dict[str, Part] = {
    "relu": Part("gradtui.zoo.feedforward:ReLU", "ReLU", "W₂ relu(W₁x)"),
    "gelu": Part("gradtui.zoo.feedforward:GELU", "GELU", "W₂ gelu(W₁x)"),
    "swiglu": Part("gradtui.zoo.feedforward:SwiGLU", "SwiGLU", "W₂ (silu(W_g x) ⊙ W₁x)"),
    "situ_glu": Part("gradtui.zoo.moe:SiTUGLU", "SiTU-GLU", "W₂ (4 tanh(g/4) σ(g) ⊙ 25 tanh(u/25))"),
    "ngpt": Part("gradtui.zoo.ngpt:UnitSwiGLU", "nGPT SwiGLU", "W₂ (silu(√D s W_v x) ⊙ s W_u x)"),
    "latent_moe": Part("gradtui.zoo.moe:LatentMoE", "LatentMoE", "Σ E_shared(x) + W↑ RMSNorm(Σ pᵢ Eᵢ(W↓x))"),
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
