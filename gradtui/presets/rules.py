"""Which presets make sense, beyond the types of their settings. Rules are data; the functions below apply them.

Three kinds of rule are kept where they are changed: which names a setting may have is `CHOICES`, what two numbers
must satisfy is `RELATIONS`, and what a part asks of the rest of the model, or which table only it reads, stands at
the part itself (`parts.Part.requires`, `parts.Part.reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from gradtui.presets import parts
from gradtui.presets.config import GROUPS, ModelConfig, Preset
from gradtui.tomlfile import choices, line_problem

# The names that a setting may have, by its dotted key. A setting that is a list may have them in any number.
CHOICES: dict[str, Collection[str]] = {
    "group": GROUPS,
    **{f"model.{key}": names for key, names in parts.MODEL_PARTS.items()},
    "model.qk_norm": parts.QK_NORMS,
    "model.position": parts.POSITIONS,
    "model.moe.balancing": parts.BALANCINGS,
    **{f"training.{key}": names for key, names in parts.TRAINING_PARTS.items()},
}


@dataclass(frozen=True, slots=True)
class Relation:
    """What several settings must satisfy together.

    `otherwise` is the sentence for a preset that does not, a format string with the fields `model` and `training`.
    """

    holds: Callable[[Preset], bool]
    otherwise: str


RELATIONS = (
    Relation(
        lambda preset: len(preset.model.mixers) > 0,
        "model.mixer = [] is not allowed; allowed is a name, or a list of at least one",
    ),
    Relation(
        lambda preset: preset.model.width % preset.model.heads == 0,
        "model.heads = {model.heads} does not divide model.width = {model.width}",
    ),
    Relation(
        lambda preset: preset.model.moe.active < preset.model.moe.experts,
        "model.moe.active = {model.moe.active} is not below model.moe.experts = {model.moe.experts}; "
        "routing compares with the first expert that is left out",
    ),
    Relation(
        lambda preset: preset.training.warmup <= preset.training.steps,
        "training.warmup = {training.warmup} is longer than training.steps = {training.steps}; "
        "allowed is at most as many",
    ),
)


def first_problem(preset: Preset) -> str | None:
    """The first rule that `preset` breaks, as a sentence without the file's name, or None."""
    checks = (
        _unknown_name, _unprintable_text, _broken_relation, _unmet_requirement, _unread_table, _corpus_problem,
    )  # fmt: skip
    return next((problem for check in checks if (problem := check(preset))), None)


def _unknown_name(preset: Preset) -> str | None:
    for key, allowed in CHOICES.items():
        for name in _names(attrgetter(key)(preset)):
            if name not in allowed:
                return f"{key} = {name!r} is not allowed; allowed: {choices(name, allowed)}"
    return None


def _unprintable_text(preset: Preset) -> str | None:
    return line_problem("title", preset.title, required=True) or line_problem("about", preset.about)


def _broken_relation(preset: Preset) -> str | None:
    for relation in RELATIONS:
        if not relation.holds(preset):
            return relation.otherwise.format(model=preset.model, training=preset.training)
    return None


def _unmet_requirement(preset: Preset) -> str | None:
    for key, name, part in _chosen_parts(preset.model):
        for requirement in part.requires:
            for value in _names(getattr(preset.model, requirement.key)):
                if not requirement.allows(value):
                    return requirement.otherwise.format(
                        part=f"model.{key} = {name!r}", setting=f"model.{requirement.key} = {value!r}"
                    )
    return None


def _unread_table(preset: Preset) -> str | None:
    read = {part.reads for _, _, part in _chosen_parts(preset.model)}
    default = ModelConfig()
    for table, readers in parts.readers().items():
        if table not in read and getattr(preset.model, table) != getattr(default, table):
            return f"model.{table} is not read by any part of this model; it belongs to {' or '.join(readers)}"
    return None


def _chosen_parts(model: ModelConfig) -> Iterator[tuple[str, str, parts.Part]]:
    """Every part in use: its key in [model], its name, its entry."""
    for key, entries in parts.MODEL_PARTS.items():
        for name in _names(getattr(model, key)):
            yield key, name, entries[name]


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


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
