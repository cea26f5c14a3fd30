"""The tables of the handbook and of the README that are made from the registries, and where they stand.

A table stands in a page between two marks, `<!-- keys -->` and `<!-- /keys -->`; the first may choose from it:
`<!-- keys: pin metric -->`. `python -m gradtui.help` writes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradtui.help import TOPICS, file
from gradtui.i18n import LANGUAGES, Words
from gradtui.metrics import METRICS, Metric
from gradtui.presets import GROUPS, Preset, load_preset, parts, shipped_directory
from gradtui.ui.actions import ACTIONS

README = Path(__file__).parents[2] / "README.md"  # in a checkout
BLOCK = re.compile(
    r"(?P<begin><!-- (?P<name>[a-z]+)(?:: (?P<chosen>[^>]+))? -->\n).*?(?P<end><!-- /(?P=name) -->)", re.DOTALL
)
MOST_DIGITS = 9  # the first so many presets of the lesson have a digit as their key
PARTS: dict[str, dict[str, parts.Part]] = {
    "model.norm": parts.NORMS,
    "model.topology": dict(parts.TOPOLOGIES),
    "model.mixer": parts.MIXERS,
    "model.feedforward": parts.FEEDFORWARDS,
    "model.init": parts.INITS,
    "training.optimizer": parts.OPTIMIZERS,
    "training.schedule": parts.SCHEDULES,
}


@dataclass(frozen=True, slots=True)
class Document:
    """A file with generated tables, and the language that it is written in."""

    path: Path
    language: str

    def text(self) -> str:
        """The file as it is."""
        return self.path.read_text(encoding="utf-8")

    def filled(self) -> str:
        """The file as it should be; raises KeyError for a mark that names no table, action, group or setting."""
        words = Words(self.language)

        def fill(block: re.Match[str]) -> str:
            chosen = tuple((block["chosen"] or "").split())
            lines = "".join(f"{line}\n" for line in TABLES[block["name"]](words, chosen))
            return f"{block['begin']}\n{lines}\n{block['end']}"

        return BLOCK.sub(fill, self.text())


def documents() -> Iterator[Document]:
    """Every page in every language in which it is written, and the README where there is one."""
    for language in LANGUAGES:
        for topic in TOPICS:
            path = file(topic, language)
            if path.parent.name == language:
                yield Document(path, language)
    if README.is_file():
        yield Document(README, "en")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (heads, ["---"] * len(heads), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _keys(words: Words, chosen: Sequence[str]) -> Iterator[str]:
    """What keys do: of the actions called `chosen`, or of all, with where they work."""

    def cells(name: str) -> tuple[str, str]:
        action = ACTIONS[name]
        keys = [action.shown] if action.shown else list(action.keys)
        return " ".join(f"`{key}`" for key in keys), words(f"key.{name}")

    heads = (words("column.key"), words("column.action"))
    if chosen:
        return _table(heads, map(cells, chosen))
    rows = ((*cells(name), words(f"where.{action.where}")) for name, action in ACTIONS.items())
    return _table((*heads, words("column.where")), rows)


def _metrics(words: Words, chosen: Sequence[str]) -> Iterator[str]:
    """What metrics are: of those that are `recorded` in one of the chosen ways, or of all."""
    texts = ("meaning", "healthy", "otherwise")

    def cells(metric: Metric) -> tuple[str, ...]:
        unit = "" if metric.unit == "1" else f" ({metric.unit})"
        return f"`{metric.name}`", f"`{metric.symbol}`{unit}", *(words(f"{text}.{metric.name}") for text in texts)

    heads = [words(f"column.{name}") for name in ("metric", "formula", *texts)]
    return _table(heads, (cells(metric) for metric in METRICS.values() if not chosen or metric.recorded in chosen))


def _presets(words: Words, chosen: Sequence[str]) -> Iterator[str]:
    """What presets there are: of the groups called `chosen`, or of all; those of the lesson with their keys."""
    shipped = sorted(map(load_preset, shipped_directory().glob("*.toml")), key=lambda preset: preset.order)
    groups = [GROUPS[GROUPS.index(name)] for name in chosen] or GROUPS
    presets = [preset for group in groups for preset in shipped if preset.group == group]
    heads = [words(f"column.{name}") for name in ("preset", "title", "about")]

    def cells(preset: Preset) -> tuple[str, ...]:
        return f"`{preset.id}`", preset.name(words.language), preset.summary(words.language)

    if tuple(groups) == ("lesson",):
        rows = ((f"`{n}`" if n <= MOST_DIGITS else "", *cells(preset)) for n, preset in enumerate(presets, 1))
        return _table((words("column.key"), *heads), rows)
    return _table(heads, map(cells, presets))


def _parts(words: Words, chosen: Sequence[str]) -> Iterator[str]:
    """What a setting of a preset may be: of the settings called `chosen`."""
    heads = [words(f"column.{name}") for name in ("value", "part", "formula")]
    return _table(
        heads,
        (
            (f"`{name}`", part.title, f"`{part.formula}`" if part.formula else "")
            for setting in chosen
            for name, part in PARTS[setting].items()
        ),
    )


TABLES: dict[str, Callable[[Words, Sequence[str]], Iterator[str]]] = {
    "keys": _keys,
    "metrics": _metrics,
    "presets": _presets,
    "parts": _parts,
}
