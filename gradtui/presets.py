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

from gradtui.tomlfile import TomlError, choices, convert, read_table
from gradtui.zoo import registry

Language = str
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class PresetError(ValueError):
    """A preset that cannot be used; the message names file, key, value and what is allowed."""


Count = Annotated[int, Meta(ge=1, description="a whole number ≥ 1")]
Steps = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 10⁹")]
Whole = Annotated[int, Meta(ge=0, le=2**62, description="a whole number ≥ 0")]
Positive = Annotated[float, Meta(gt=0, le=1e9, description="a finite number > 0")]
NonNegative = Annotated[float, Meta(ge=0, le=1e9, description="a finite number ≥ 0")]
Beta = Annotated[float, Meta(ge=0, lt=1, description="a number from 0 up to, not including, 1")]


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model of a preset: shapes, and the names of its parts in `gradtui.zoo.registry`."""

    layers: Annotated[int, Meta(ge=1, le=1000, description="a whole number from 1 to 1000")] = 12
    width: Annotated[int, Meta(ge=2, le=8192, description="a whole number from 2 to 8192")] = 64
    heads: Count = 4
    hidden: Annotated[int, Meta(ge=0, description="a whole number ≥ 0 (0 means 4 × width)")] = 0
    context: Annotated[int, Meta(ge=2, le=65536, description="a whole number from 2 to 65536")] = 64
    norm: str = "layernorm"
    eps: Positive = 1e-5
    topology: str = "pre"
    mixer: str = "attention"
    feedforward: str = "relu"
    init: str = "xavier"

    @property
    def hidden_width(self) -> int:
        """Inner width of the feed-forward."""
        return self.hidden or 4 * self.width


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
    inside = Path(__file__).parent / "_presets"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "presets"


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
    ordered = sorted(library.presets.values(), key=lambda preset: (preset.order, preset.id))
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
    described = {tuple[Beta, Beta]: "two numbers from 0 up to, not including, 1"}
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
        ("model.mixer", model.mixer, registry.MIXERS),
        ("model.feedforward", model.feedforward, registry.FEEDFORWARDS),
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
    if model.width % model.heads:
        return f"model.heads = {model.heads} does not divide model.width = {model.width}"
    if training.warmup > training.steps:
        return (
            f"training.warmup = {training.warmup} is longer than training.steps = {training.steps}; "
            "allowed is at most as many"
        )
    return _corpus_problem(preset)


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
