"""What a preset may say: the tables of its TOML file as typed structs, with their defaults.

Types, ranges and defaults are here; which names there are is in `gradtui.presets.parts`, which combinations make
sense in `gradtui.presets.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gradtui import i18n
from gradtui.i18n import Localized

GROUPS = ("lesson", "own", "relay", "kimi-k3", "alternatives")  # as they are listed

Count = Annotated[int, Meta(ge=1, description="a whole number ≥ 1")]
Steps = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 10⁹")]
Whole = Annotated[int, Meta(ge=0, le=2**62, description="a whole number ≥ 0")]
Positive = Annotated[float, Meta(gt=0, le=1e9, description="a finite number > 0")]
NonNegative = Annotated[float, Meta(ge=0, le=1e9, description="a finite number ≥ 0")]
Beta = Annotated[float, Meta(ge=0, lt=1, description="a number from 0 up to, not including, 1")]

Cycle = str | tuple[str, ...]  # one name, or names that repeat from layer to layer


class HyperConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[model.hyper]: what the topologies hyper_connections and mhc read."""

    streams: Annotated[int, Meta(ge=1, le=64, description="a whole number from 1 to 64")] = 4
    dynamic: bool = True  # the connections also depend on the stream; else they are weights alone


class MoEConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[model.moe]: what the feed-forward latent_moe reads."""

    experts: Count = 64  # that a router chooses from
    active: Count = 4  # experts that each token takes
    shared: Whole = 2  # experts that every token takes, full width
    latent: Whole = 0  # width of the latent space; 0 means width / 2
    hidden: Whole = 0  # inner width of one routed expert; 0 means latent width / 2
    shared_hidden: Whole = 0  # inner width of one shared expert; 0 means width
    latent_norm: bool = True  # RMSNorm between the sum over experts and the up-projection
    scaling: Positive = 1.0  # factor on the routed sum
    balancing: str = "quantile"
    dense_layers: Whole = 0  # number of layers at the beginning that have situ_glu in place of experts


class KDAConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[model.kda]: what the mixer kda reads."""

    conv: Count = 4  # width of the causal depthwise convolution
    decay_rank: Whole = 0  # inner width of the decay's projection; 0 means the head width
    output_norm: bool = True  # RMSNorm of each head before the output gate


class MLAConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[model.mla]: what the mixer mla reads."""

    q_latent: Whole = 0  # 0 means width / 2
    kv_latent: Whole = 0  # 0 means width / 2
    shared_key: Whole = 0  # key channels that all heads share; 0 means head width / 2


class AttnResConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[model.attn_res]: what the topology attn_res reads."""

    block: Whole = 0  # layers in a block; 0 means that every sublayer is a source
    key_norm: bool = True  # RMSNorm on the keys


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model of a preset: shapes, and the names of its parts in `gradtui.presets.parts`."""

    layers: Annotated[int, Meta(ge=1, le=1000, description="a whole number from 1 to 1000")] = 12
    width: Annotated[int, Meta(ge=2, le=8192, description="a whole number from 2 to 8192")] = 64
    heads: Count = 4
    hidden: Annotated[int, Meta(ge=0, description="a whole number ≥ 0 (0 means 4 × width)")] = 0
    context: Annotated[int, Meta(ge=2, le=65536, description="a whole number from 2 to 65536")] = 64
    norm: str = "layernorm"
    eps: Positive = 1e-5
    topology: str = "pre"
    mixer: Cycle = "attention"
    feedforward: str = "relu"
    qk_norm: str = "none"
    position: str = "learned"
    init: str = "xavier"
    hyper: HyperConfig = HyperConfig()
    moe: MoEConfig = MoEConfig()
    kda: KDAConfig = KDAConfig()
    mla: MLAConfig = MLAConfig()
    attn_res: AttnResConfig = AttnResConfig()

    @property
    def hidden_width(self) -> int:
        """Inner width of the feed-forward."""
        return self.hidden or 4 * self.width

    @property
    def mixers(self) -> tuple[str, ...]:
        """The mixers in use, as they repeat from layer to layer."""
        return (self.mixer,) if isinstance(self.mixer, str) else self.mixer

    def mixer_of(self, layer: int) -> str:
        """The mixer of a layer, counted from 0: a list of them repeats."""
        return self.mixers[layer % len(self.mixers)]

    def feedforward_of(self, layer: int) -> str:
        """The feed-forward of a layer, counted from 0: experts may begin after a few dense layers."""
        dense = self.feedforward == "latent_moe" and layer < self.moe.dense_layers
        return "situ_glu" if dense else self.feedforward


class TrainingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a preset trains. `lr` is the peak; `warmup` steps rise to it linearly; `clip` 0 means off."""

    steps: Steps = 400
    batch: Annotated[int, Meta(ge=1, le=65536, description="a whole number from 1 to 65536")] = 8
    optimizer: str = "adamw"
    lr: Positive = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    momentum: Beta = 0.0
    weight_decay: NonNegative = 0.0
    schedule: str = "constant"
    warmup: Whole = 0
    clip: NonNegative = 0.0
    seed: Whole = 0


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment: what to build, how to train it, and what to look at."""

    title: Localized
    about: Localized = Localized()
    group: str = "own"
    order: Whole = 1000
    corpus: str = "stdlib"
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    id: str = ""

    def name(self, language: str) -> str:
        """The title in `language`; English, or else another language, where there is none."""
        return self.title.get(language)

    def summary(self, language: str) -> str:
        """The one-sentence description in `language`, as with `name`."""
        return self.about.get(language)


def flatten(preset: Preset) -> dict[str, Any]:
    """`preset` as run files and `gradtui presets --json` have it: with the keys `title`, `title_zh`, …"""
    return i18n.flatten(preset)


def unflatten(fact: object) -> Preset:
    """The preset that a run file holds: the inverse of `flatten`. Raises msgspec.ValidationError.

    Texts in languages that this gradtui does not have are left out.
    """
    if isinstance(fact, Mapping):
        gathered = i18n.gather(fact, Preset)
        fact = {key: value for key, value in gathered.items() if not re.match(r"(title|about)_", key)}
    return msgspec.convert(fact, Preset)
