"""Every part a preset can pick, by name. Torch-free, so that presets are checked without loading torch.

A new norm, topology, mixer, feed-forward, init or optimizer is one entry here and one class or function
where `target` points; `resolve` imports it when a model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a part asks of another setting of [model].

    `key` is the setting; its value must be one of `only`, where that is given, and none of `never`. A setting that
    is a list must hold for each of its entries. `otherwise` is the sentence for a model where it does not: a
    format string with the fields `part` and `setting`, both written as in a preset ("model.norm = 'none'").
    """

    key: str
    otherwise: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def allows(self, value: str) -> bool:
        """Whether the setting may have this value."""
        return value not in self.never and (not self.only or value in self.only)


@dataclass(frozen=True, slots=True)
class Part:
    """A named part: where it lives ("module:attribute"), its formula, and what to call it on screen.

    `requires` is what it asks of other settings, `reads` the table of [model] that only it and its like read.
    """

    target: str
    title: str
    formula: str = ""
    requires: tuple[Requirement, ...] = ()
    reads: str = ""

    def allows(self, key: str, value: str) -> bool:
        """Whether the setting `key` of [model] may have `value` beside this part."""
        return all(requirement.allows(value) for requirement in self.requires if requirement.key == key)


@dataclass(frozen=True, slots=True)
class Topology(Part):
    """How a norm and a residual branch are connected.

    `final_norm`: the model has a norm after its last layer. `norm_on_trunk`: the stream passes through norms.
    `norms_qkv`: attention has an RMSNorm on q, k and v of each head.
    """

    final_norm: bool = False
    norm_on_trunk: bool = False
    norms_qkv: bool = False


NEEDS_NORM = Requirement(
    "norm",
    never=("none",),
    otherwise="{part} says where norms stand and means nothing with {setting}; choose a norm",
)
NO_NORM = Requirement(
    "norm",
    only=("none",),
    otherwise="{part} has no place for a norm, so {setting} is not allowed; allowed: none",
)
OWN_QK_NORM = Requirement(
    "qk_norm", only=("none",), otherwise="{setting} is for attention; {part} has norms of its own"
)


def _deepnorm_only(key: str, *, only: tuple[str, ...] = (), never: tuple[str, ...] = ()) -> Requirement:
    otherwise = "{part} scales W_V, W_O and a dense feed-forward at the start, which {setting} does not have"
    return Requirement(key, otherwise, only, never)


def _ngpt_only(key: str) -> Requirement:
    otherwise = "{setting} is not allowed in an nGPT, all of whose vectors have length 1; allowed: ngpt"
    return Requirement(key, otherwise, only=("ngpt",))


NORMS: dict[str, Part] = {
    "layernorm": Part("gradtui.zoo.norms:LayerNorm", "LayerNorm", "(x − μ) / √(σ² + ε) · γ + β"),
    "rmsnorm": Part("gradtui.zoo.norms:RMSNorm", "RMSNorm", "x / √(mean(x²) + ε) · γ"),
    "dyt": Part("gradtui.zoo.norms:DyT", "DyT", "γ tanh(αx) + β"),
    "derf": Part("gradtui.zoo.norms:Derf", "Derf", "γ erf(αx + s) + β"),
    "none": Part("gradtui.zoo.norms:NoNorm", "no norm", "x"),
}

_TOPOLOGIES = "gradtui.zoo.topologies"
TOPOLOGIES: dict[str, Topology] = {
    "post": Topology(f"{_TOPOLOGIES}.standard:Post", "Post", "x ← N(x + f(x))", norm_on_trunk=True),
    "pre": Topology(f"{_TOPOLOGIES}.standard:Pre", "Pre", "x ← x + f(N(x))", final_norm=True),
    "sandwich": Topology(
        f"{_TOPOLOGIES}.standard:Sandwich", "Sandwich", "x ← x + N′(f(N(x)))", (NEEDS_NORM,), final_norm=True
    ),
    "olmo2": Topology(
        f"{_TOPOLOGIES}.standard:OutputNorm", "OLMo 2", "x ← x + N(f(x))", (NEEDS_NORM,), final_norm=True
    ),
    "hybrid_norm": Topology(
        f"{_TOPOLOGIES}.standard:HybridNorm",
        "HybridNorm",
        "x ← x + f(x), q, k, v normed;  x ← N(x) + f(N(x))",
        (
            NEEDS_NORM,
            Requirement(
                "mixer",
                only=("attention",),
                otherwise="{part} has norms on q, k and v of attention, which {setting} does not have",
            ),
            Requirement(
                "qk_norm",
                never=("full",),
                otherwise="{part} has norms on q, k and v of each head, so {setting} is not allowed; leave it out",
            ),
        ),
        final_norm=True,
        norm_on_trunk=True,
        norms_qkv=True,
    ),
    "deepnorm": Topology(
        f"{_TOPOLOGIES}.scaled:DeepNorm",
        "DeepNorm",
        "x ← N(αx + f(x)), α = (2L)^¼",
        (
            NEEDS_NORM,
            _deepnorm_only("mixer", only=("attention",)),
            _deepnorm_only("feedforward", never=("latent_moe",)),
            Requirement(
                "init",
                only=("xavier",),
                otherwise="{part} scales Xavier's weights, so {setting} is not allowed; allowed: xavier",
            ),
        ),
        norm_on_trunk=True,
    ),
    "keel": Topology(
        f"{_TOPOLOGIES}.scaled:Keel", "Keel", "x ← N′(αx + f(N(x))), α = 2L", (NEEDS_NORM,), norm_on_trunk=True
    ),
    "residual_dual": Topology(
        f"{_TOPOLOGIES}.multistream:ResiDual",
        "ResiDual",
        "y = f(p);  p ← N(p + y), d ← d + y;  x = p + N(d)",
        (NEEDS_NORM,),
        final_norm=True,
        norm_on_trunk=True,
    ),
    "mix_ln": Topology(
        f"{_TOPOLOGIES}.standard:MixLN",
        "Mix-LN",
        "Post in the first L/4 layers, then Pre",
        (NEEDS_NORM,),
        final_norm=True,
        norm_on_trunk=True,
    ),
    "lns": Topology(
        f"{_TOPOLOGIES}.scaled:LayerNormScaling",
        "LNS",
        "x ← x + f(N(x)/√ℓ)",
        (
            NEEDS_NORM,
            Requirement(
                "init",
                never=("gpt2_scaled",),
                otherwise="{part} makes deep branches smaller as {setting} does; allowed is one of the two",
            ),
        ),
        final_norm=True,
    ),
    "rezero": Topology(f"{_TOPOLOGIES}.scaled:ReZero", "ReZero", "x ← x + αf(x), α = 0 at first", (NO_NORM,)),
    "hyper_connections": Topology(
        f"{_TOPOLOGIES}.multistream:HyperConnections",
        "Hyper-Connections",
        "X ← A_rᵀX + B f(N(A_mᵀX))",
        reads="hyper",
        final_norm=True,
    ),
    "mhc": Topology(
        f"{_TOPOLOGIES}.multistream:ManifoldHyperConnections",
        "mHC",
        "X ← H_resᵀX + H_post f(N(H_pre X)), H_res doubly stochastic",
        reads="hyper",
        final_norm=True,
    ),
    "attn_res": Topology(
        f"{_TOPOLOGIES}.depth_attention:AttnRes",
        "AttnRes",
        "h ← Σ αᵢvᵢ, α = softmax(wᵀN(vᵢ));  v ← f(N(h))",
        reads="attn_res",
        final_norm=True,
    ),
    "ngpt": Topology(
        f"{_TOPOLOGIES}.ngpt:NGPT",
        "nGPT",
        "x ← N(x + α(N(f(x)) − x)), N(x) = x/‖x‖",
        (NO_NORM, _ngpt_only("mixer"), _ngpt_only("feedforward")),
        norm_on_trunk=True,
    ),
    "none": Topology(f"{_TOPOLOGIES}.standard:NoResidual", "no residual", "x ← f(N(x))", final_norm=True),
}

QK_NORMS = ("none", "per_head", "full")
POSITIONS = ("learned", "none")
BALANCINGS = ("quantile", "fixed")

MIXERS: dict[str, Part] = {
    "attention": Part("gradtui.zoo.mixers:Attention", "attention", "softmax(QKᵀ/√d) V, causal"),
    "kda": Part(
        "gradtui.zoo.kda:KDA",
        "KDA",
        "S ← (I − βkkᵀ) diag(eᵍ) S + βkvᵀ;  y = W_o(σ(W_g x) ⊙ N(Sᵀq))",
        (OWN_QK_NORM,),
        reads="kda",
    ),
    "mla": Part(
        "gradtui.zoo.mla:MLA",
        "gated MLA",
        "W_o(σ(W_g x) ⊙ softmax(QKᵀ/√d) V), Q, K, V of low rank",
        (OWN_QK_NORM,),
        reads="mla",
    ),
    "ngpt": Part(
        "gradtui.zoo.ngpt:UnitAttention",
        "nGPT attention",
        "softmax(√d (s N(q))·(s N(k))) V, causal",
        (OWN_QK_NORM, _ngpt_only("topology"), _ngpt_only("feedforward")),
    ),
}

FEEDFORWARDS: dict[str, Part] = {
    "relu": Part("gradtui.zoo.feedforward:ReLU", "ReLU", "W₂ relu(W₁x)"),
    "gelu": Part("gradtui.zoo.feedforward:GELU", "GELU", "W₂ gelu(W₁x)"),
    "swiglu": Part("gradtui.zoo.feedforward:SwiGLU", "SwiGLU", "W₂ (silu(W_g x) ⊙ W₁x)"),
    "situ_glu": Part("gradtui.zoo.moe:SiTUGLU", "SiTU-GLU", "W₂ (4 tanh(g/4) σ(g) ⊙ 25 tanh(u/25))"),
    "ngpt": Part(
        "gradtui.zoo.ngpt:UnitSwiGLU",
        "nGPT SwiGLU",
        "W₂ (silu(√D s W_v x) ⊙ s W_u x)",
        (_ngpt_only("topology"), _ngpt_only("mixer")),
    ),
    "latent_moe": Part(
        "gradtui.zoo.moe:LatentMoE", "LatentMoE", "Σ E_shared(x) + W↑ RMSNorm(Σ pᵢ Eᵢ(W↓x))", reads="moe"
    ),
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


# What [model] and [training] name, by key; requirements are checked in this order.
MODEL_PARTS: dict[str, Mapping[str, Part]] = {
    "topology": TOPOLOGIES,
    "mixer": MIXERS,
    "feedforward": FEEDFORWARDS,
    "norm": NORMS,
    "init": INITS,
}
TRAINING_PARTS: dict[str, Mapping[str, Part]] = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}


def readers() -> dict[str, list[str]]:
    """The tables of [model] that only some parts read, each with the settings that choose such a part."""
    found: dict[str, list[str]] = {}
    for key, entries in MODEL_PARTS.items():
        for name, part in entries.items():
            if part.reads:
                found.setdefault(part.reads, []).append(f'{key} = "{name}"')
    return found


def resolve(part: Part) -> Any:
    """The class or function that an entry names."""
    module, _, attribute = part.target.partition(":")
    return getattr(import_module(module), attribute)
