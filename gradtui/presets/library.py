"""Reading presets: one TOML file each, read into a typed `Preset` or refused in one sentence.

A preset's id is its file's stem. Three places are read, later ones win: the presets shipped with gradtui,
the user's configuration directory, and any `--presets DIR`. One bad file never hides the good ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from gradtui.presets.config import GROUPS, Beta, Cycle, Preset
from gradtui.presets.rules import first_problem
from gradtui.tomlfile import TomlError, convert, read_table

# What is allowed for types that cannot say so themselves.
_DESCRIBED = {
    tuple[Beta, Beta]: "two numbers from 0 up to, not including, 1",
    Cycle: "a name in quotes, or a list of them",
}


class PresetError(ValueError):
    """A preset that cannot be used; the message names file, key, value and what is allowed.

    `preset_id` is the id that the preset would have had, "" where none is known.
    """

    def __init__(self, message: str, preset_id: str = "") -> None:
        super().__init__(message)
        self.preset_id = preset_id


@dataclass(slots=True)
class Library:
    """All presets that could be read, in the order they are shown, and one error for each that could not."""

    presets: dict[str, Preset] = field(default_factory=dict)
    errors: list[PresetError] = field(default_factory=list)

    def get(self, name: str) -> Preset:
        """The preset called `name`; raises PresetError: why it could not be read, or which names come near."""
        if name in self.presets:
            return self.presets[name]
        for error in self.errors:
            if error.preset_id == name:
                raise error
        close = difflib.get_close_matches(name, self.presets, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise PresetError(f"there is no preset {name!r}{hint} (there are: {', '.join(self.presets)})", name)


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
        raise PresetError(f"{path}: {error}", path.stem) from error
    return parse_preset(table, id=path.stem, source=str(path), base=path.parent)


def parse_preset(table: Mapping[str, Any], *, id: str, source: str, base: Path | None = None) -> Preset:
    """Turn a TOML table into a Preset; raises PresetError.

    `source` is what messages call it, `base` the directory that `file:` paths are relative to.
    """
    try:
        preset = convert(table, Preset, what="a preset", described=_DESCRIBED)
    except TomlError as error:
        raise PresetError(f"{source}: {error}", id) from error
    preset = msgspec.structs.replace(preset, id=id, corpus=_absolute(preset.corpus, base))
    problem = first_problem(preset)
    if problem:
        raise PresetError(f"{source}: {problem}", id)
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
