"""Presets: one TOML file each, read into a typed `Preset` or refused in one sentence.

A preset's id is its file's stem. Three places are read, later ones win: the presets shipped with gradtui,
the user's configuration directory, and any `--presets DIR`. One bad file never hides the good ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import platformdirs
from msgspec import Meta

from gradtui.presets import parts as registry
from gradtui.tomlfile import TomlError, choices, convert, read_table

Language = str
LANGUAGES: tuple[Language, ...] = ("en", "zh")
GROUPS = ("lesson", "own", "relay", "kimi-k3", "alternatives")  # as they are listed


class PresetError(ValueError):
    """A preset that cannot be used; the message names file, key, value and what is allowed."""


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
    active: Count = 4  # of which each token takes so many
    shared: Whole = 2  # experts that every token takes, full width
    latent: Whole = 0  # width of the latent space; 0 means width / 2
    hidden: Whole = 0  # inner width of one routed expert; 0 means latent width / 2
    shared_hidden: Whole = 0  # inner width of one shared expert; 0 means width
    latent_norm: bool = True  # RMSNorm between the sum over experts and the up-projection
    scaling: Positive = 1.0  # factor on the routed sum
    balancing: str = "quantile"
    dense_layers: Whole = 0  # so many layers at the beginning have situ_glu in place of experts


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

    title: str
    title_zh: str = ""
    about: str = ""
    about_zh: str = ""
    group: str = "own"
    order: Whole = 1000
    corpus: str = "stdlib"
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    id: str = ""

    def name(self, language: Language) -> str:
        """The title in `language`; English where there is no other."""
        return self.title_zh if language == "zh" and self.title_zh else self.title

    def summary(self, language: Language) -> str:
        """The one-sentence description in `language`."""
        return self.about_zh if language == "zh" and self.about_zh else self.about


@dataclass(slots=True)
class Library:
    """All presets that could be read, in the order they are shown, and one error for each that could not."""

    presets: dict[str, Preset] = field(default_factory=dict)
    errors: list[PresetError] = field(default_factory=list)

    def get(self, name: str) -> Preset:
        """The preset called `name`; raises PresetError with the nearest names otherwise."""
        if name in self.presets:
            return self.presets[name]
        for error in self.errors:
            if str(error).startswith(f"{name}.toml") or f"/{name}.toml" in str(error):
                raise error
        close = difflib.get_close_matches(name, self.presets, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise PresetError(f"there is no preset {name!r}{hint} (there are: {', '.join(self.presets)})")


def shipped_directory() -> Path:
    """Where the presets that come with gradtui lie: in the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parents[1] / "_presets"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "presets"


def user_directory() -> Path:
    """Where a user's own presets are looked for."""
    return Path(platformdirs.user_config_dir("gradtui", appauthor=False)) / "presets"


def load_library(extra: Iterable[Path] = ()) -> Library:
    """Read every preset: shipped, the user's, then the directories in `extra` (which must exist)."""
    library = Library()
    for directory in (shipped_directory(), user_directory(), *extra):
        for path in sorted(directory.glob("*.toml")):
            try:
                library.presets[path.stem] = load_preset(path)
            except PresetError as error:
                library.errors.append(error)
    ordered = sorted(library.presets.values(), key=lambda p: (GROUPS.index(p.group), p.order, p.id))
    library.presets = {preset.id: preset for preset in ordered}
    return library


def load_preset(path: Path) -> Preset:
    """Read one preset file; raises PresetError."""
    try:
        table = read_table(path)
    except TomlError as error:
        raise PresetError(f"{path}: {error}") from error
    return parse_preset(table, id=path.stem, source=str(path), base=path.parent)


def parse_preset(table: Mapping[str, Any], *, id: str, source: str, base: Path | None = None) -> Preset:
    """Turn a TOML table into a Preset; `source` is what messages call it, `base` resolves `file:` paths."""
    described = {
        tuple[Beta, Beta]: "two numbers from 0 up to, not including, 1",
        Cycle: "a name in quotes, or a list of them",
    }
    try:
        preset = convert(table, Preset, what="a preset", described=described)
    except TomlError as error:
        raise PresetError(f"{source}: {error}") from error
    preset = msgspec.structs.replace(preset, id=id, corpus=_absolute(preset.corpus, base))
    problem = _first_problem(preset)
    if problem:
        raise PresetError(f"{source}: {problem}")
    return preset


def _absolute(corpus: str, base: Path | None) -> str:
    """A `file:` path relative to the preset's own directory; what is no path at all is refused later."""
    kind, _, path = corpus.partition(":")
    if kind != "file" or not path or base is None:
        return corpus
    try:
        return f"file:{(base / Path(path).expanduser()).resolve()}"
    except (OSError, RuntimeError, ValueError):  # no such user, a NUL byte, a loop of links
        return corpus


def _first_problem(preset: Preset) -> str | None:
    """The first thing that types alone cannot refuse, as a sentence, or None."""
    model, training = preset.model, preset.training
    parts: list[tuple[str, str, Iterable[str]]] = [
        ("model.norm", model.norm, registry.NORMS),
        ("model.topology", model.topology, registry.TOPOLOGIES),
        *(("model.mixer", mixer, registry.MIXERS) for mixer in model.mixers),
        ("model.feedforward", model.feedforward, registry.FEEDFORWARDS),
        ("model.qk_norm", model.qk_norm, registry.QK_NORMS),
        ("model.position", model.position, registry.POSITIONS),
        ("model.moe.balancing", model.moe.balancing, registry.BALANCINGS),
        ("group", preset.group, GROUPS),
        ("model.init", model.init, registry.INITS),
        ("training.optimizer", training.optimizer, registry.OPTIMIZERS),
        ("training.schedule", training.schedule, registry.SCHEDULES),
    ]
    for key, value, allowed in parts:
        if value not in allowed:
            return f"{key} = {value!r} is not allowed; allowed: {choices(value, allowed)}"
    for key in ("title", "title_zh", "about", "about_zh"):
        value = getattr(preset, key)
        if not value.isprintable() or (key == "title" and not value.strip()):
            return f"{key} = {value!r} is not allowed; allowed is one line of visible characters"
    if not model.mixers:
        return "model.mixer = [] is not allowed; allowed is a name, or a list of at least one"
    if model.width % model.heads:
        return f"model.heads = {model.heads} does not divide model.width = {model.width}"
    clash = _first_clash(model)
    if clash:
        return clash
    if training.warmup > training.steps:
        return (
            f"training.warmup = {training.warmup} is longer than training.steps = {training.steps}; "
            "allowed is at most as many"
        )
    return _corpus_problem(preset)


def _first_clash(model: ModelConfig) -> str | None:
    """The first two parts that make no sense together, with the reason, or None."""
    topology = registry.TOPOLOGIES[model.topology]
    named = f"model.topology = {model.topology!r}"
    if topology.norm == "some" and model.norm == "none":
        return f"{named} says where norms stand and means nothing with model.norm = 'none'; choose a norm"
    if topology.norm == "none" and model.norm != "none":
        return f"{named} has no place for a norm, so model.norm = {model.norm!r} is not allowed; allowed: none"
    others = [mixer for mixer in model.mixers if mixer != "attention"]
    if others and topology.norms_qkv:
        return f"{named} has norms on q, k and v of attention, which model.mixer = {others[0]!r} does not have"
    if others and model.qk_norm != "none":
        return (
            f"model.qk_norm = {model.qk_norm!r} is for attention; model.mixer = {others[0]!r} has norms of its own"
        )
    if topology.norms_qkv and model.qk_norm == "full":
        return (
            f"{named} has norms on q, k and v of each head, so model.qk_norm = 'full' is not allowed; leave it out"
        )
    if model.topology == "deepnorm" and (others or model.feedforward == "latent_moe"):
        what = f"model.mixer = {others[0]!r}" if others else "model.feedforward = 'latent_moe'"
        return f"{named} scales W_V, W_O and a dense feed-forward at the start, which {what} does not have"
    if model.topology == "deepnorm" and model.init != "xavier":
        return f"{named} scales Xavier's weights, so model.init = {model.init!r} is not allowed; allowed: xavier"
    if model.topology == "lns" and model.init == "gpt2_scaled":
        return f"{named} makes deep branches smaller as model.init = 'gpt2_scaled' does; allowed is one of the two"
    parts = {
        "model.topology": (model.topology,),
        "model.mixer": model.mixers,
        "model.feedforward": (model.feedforward,),
    }
    ngpt = {key: all(name == "ngpt" for name in names) for key, names in parts.items()}
    if any("ngpt" in names for names in parts.values()) and not all(ngpt.values()):
        key = next(key for key, is_ngpt in ngpt.items() if not is_ngpt)
        value = getattr(model, key.partition(".")[2])
        return f"{key} = {value!r} is not allowed in an nGPT, all of whose vectors have length 1; allowed: ngpt"
    if model.moe.active >= model.moe.experts:
        return (
            f"model.moe.active = {model.moe.active} is not below model.moe.experts = {model.moe.experts}; "
            "routing compares with the first expert that is left out"
        )
    readers: list[tuple[str, msgspec.Struct, msgspec.Struct, bool, str]] = [
        ("hyper", model.hyper, HyperConfig(), model.topology in ("hyper_connections", "mhc"), "hyper-connections"),
        ("moe", model.moe, MoEConfig(), model.feedforward == "latent_moe", 'feedforward = "latent_moe"'),
        ("kda", model.kda, KDAConfig(), "kda" in model.mixers, 'mixer = "kda"'),
        ("mla", model.mla, MLAConfig(), "mla" in model.mixers, 'mixer = "mla"'),
        ("attn_res", model.attn_res, AttnResConfig(), model.topology == "attn_res", 'topology = "attn_res"'),
    ]
    for key, given, default, read, reader in readers:
        if given != default and not read:
            return f"model.{key} is not read by any part of this model; it belongs to {reader}"
    return None


def _corpus_problem(preset: Preset) -> str | None:
    kind, _, argument = preset.corpus.partition(":")
    if preset.corpus in ("stdlib", "markov"):
        return None
    if kind != "file" or not argument:
        return f"corpus = {preset.corpus!r} is not allowed; allowed: stdlib, markov, file:PATH"
    path = Path(argument)
    try:
        there = path.is_file()
    except (OSError, ValueError):  # a name too long, a NUL byte
        there = False
    if not there:
        return f"corpus = {preset.corpus!r}: there is no such file"
    size, needed = path.stat().st_size, 4 * (preset.model.context + 1)
    if size < needed:
        return (
            f"corpus = {preset.corpus!r} has {size} bytes; with model.context = {preset.model.context} "
            f"at least {needed} are needed"
        )
    return None
