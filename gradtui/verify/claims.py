"""Claims: one TOML file each, read into a typed `Claim` or refused in one sentence.

A claim's id is its file's stem. They lie in `claims/` beside the presets that they are about; of two with one id
the later directory wins, as with presets. One bad file never hides the good ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gradtui.analysis.quantities import QUANTITIES, TAKES
from gradtui.i18n import Localized
from gradtui.presets import shipped_directory, user_directory
from gradtui.tomlfile import TomlError, choices, convert, line_problem, read_table
from gradtui.verify.bounds import ALLOWED, Bound, parse_bound

# What each kind of measure is made of, beside its kind.
KINDS: dict[str, tuple[str, ...]] = {
    "metric": ("samples",),
    "comparison": ("samples", "compare"),
    "invariant": ("name", "preset", "change"),
    "benchmark": ("name", "mode", "passed"),
}
# Of two samples a and b of one seed; "noise" is |a − b| / the standard deviation of b over the seeds.
COMPARISONS = ("difference", "distance", "ratio", "noise")

# What can be measured without a training run: the functions of these names in `gradtui.verify.invariants`, called
# with a preset and a seed, and in `gradtui.verify.benchmarks`, called with a mode, a pass and a seed.
INVARIANTS: dict[str, str] = {
    "sum_of_branches": "‖x_L − (x_0 + Σf)‖ / ‖x_L‖ at step 0",
    "trunk_share": "‖∂L/∂x along the trunk‖ / ‖∂L/∂x of the next sublayer‖, least of all sublayers at step 0",
    "trunk_share_through": "product over all sublayers of the trunk's share of the gradient at step 0",
    "lost_directions": "directions that the norm's Jacobian removes",
    "scale_invariance": "|N(cx) − N(x)|, largest for c = 10 and c = 100",
    "centred_rms_twin": "|logits of the model − of its centred RMSNorm twin|, largest, float64",
}
BENCHMARKS: dict[str, str] = {
    "norm_time": "time of RMSNorm / time of LayerNorm",
    "norm_bytes": "bytes moved by RMSNorm / by LayerNorm",
}
# How a benchmark's norms are run: torch's own operators, the lesson's formulas one operator at a time, and those
# formulas compiled into one kernel.
MODES = ("torch", "formula", "compiled")
PASSES = ("forward", "backward")


class ClaimError(ValueError):
    """A claim that cannot be used; the message names file, key, value and what is allowed.

    `claim_id` is the id that the claim would have had, "" where none is known.
    """

    def __init__(self, message: str, claim_id: str = "") -> None:
        super().__init__(message)
        self.claim_id = claim_id


Step = Annotated[int, Meta(ge=0, le=10**6, description="a whole number from 0 to 10⁶")]
Stop = Annotated[int, Meta(ge=1, le=10**6, description="a whole number from 1 to 10⁶")]


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number of one run: `take` of `quantity` over the steps start ≤ s < stop.

    The run is that of `preset` for `stop` steps, with what `change` says put in place of the preset's own, in
    the tables of a preset file. A quantity that is measured when a run has ended ignores `start` and `take`.
    """

    preset: str
    quantity: str
    stop: Stop
    start: Step = 0
    take: str = "last"
    change: dict[str, Any] = {}


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is measured, once for each seed."""

    kind: str
    samples: tuple[Sample, ...] = ()  # one for a metric, two for a comparison
    compare: str = ""  # of a comparison
    name: str = ""  # of an invariant or a benchmark
    preset: str = ""  # of an invariant
    change: dict[str, Any] = {}  # of an invariant's preset
    mode: str = ""  # of a benchmark
    passed: str = ""  # of a benchmark: forward or backward


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sentence of the lesson, or one that it should have, and the experiment that decides it.

    `note` is what the literature or the experiment has to add; with `caveat` it is something that must be
    said even where the measured value lies within the bound. `quick` claims make up the quick set.
    """

    lesson: str
    text: Localized
    bound: str
    measure: Measure
    note: Localized = Localized()
    caveat: bool = False
    quick: bool = False
    order: Annotated[int, Meta(ge=0, description="a whole number ≥ 0")] = 1000
    id: str = ""

    def says(self, language: str) -> str:
        """The claim itself in `language`."""
        return self.text.get(language)

    def adds(self, language: str) -> str:
        """The note in `language`, "" where there is none."""
        return self.note.get(language)

    @property
    def limits(self) -> Bound:
        """The bound as an interval."""
        bound = parse_bound(self.bound)
        assert bound is not None, "refused when it was read"
        return bound

    def presets(self) -> tuple[str, ...]:
        """The presets that it is about, each once."""
        names = [sample.preset for sample in self.measure.samples]
        return tuple(dict.fromkeys(name for name in [*names, self.measure.preset] if name))


@dataclass(slots=True)
class Claims:
    """All claims that could be read, in the order they are shown, and one error for each that could not."""

    claims: dict[str, Claim] = field(default_factory=dict)
    errors: list[ClaimError] = field(default_factory=list)

    def pick(self, names: Iterable[str]) -> list[Claim]:
        """The claims called so, each once, in the order of `names`; raises ClaimError as `get` does."""
        return [self.get(name) for name in dict.fromkeys(names)]

    def get(self, name: str) -> Claim:
        """The claim called `name`; raises ClaimError: why it could not be read, or which name comes near."""
        if name in self.claims:
            return self.claims[name]
        for error in self.errors:
            if error.claim_id == name:
                raise error
        close = difflib.get_close_matches(name, self.claims, n=1)
        hint = f"did you mean {close[0]}?" if close else "gradtui verify --list names them all"
        raise ClaimError(f"there is no claim {name!r}; {hint}", name)


def load_claims(extra: Iterable[Path] = ()) -> Claims:
    """Read every claim: those shipped, the user's, then those beside the presets in the directories `extra`."""
    library = Claims()
    for directory in (shipped_directory(), user_directory(), *extra):
        for path in sorted((directory / "claims").glob("*.toml")):
            try:
                library.claims[path.stem] = load_claim(path)
            except ClaimError as error:
                library.errors.append(error)
    ordered = sorted(library.claims.values(), key=lambda claim: (claim.order, claim.id))
    library.claims = {claim.id: claim for claim in ordered}
    return library


def load_claim(path: Path) -> Claim:
    """Read one claim's file; raises ClaimError."""
    try:
        table = read_table(path)
    except TomlError as error:
        raise ClaimError(f"{path}: {error}", path.stem) from error
    return parse_claim(table, id=path.stem, source=str(path))


def parse_claim(table: Mapping[str, Any], *, id: str, source: str) -> Claim:
    """Turn a TOML table into a Claim; `source` is what messages call it."""
    described = {dict[str, Any]: "a table as in a preset file"}
    try:
        claim = convert(table, Claim, what="a claim", described=described)
    except TomlError as error:
        raise ClaimError(f"{source}: {error}", id) from error
    problem = _first_problem(claim)
    if problem:
        raise ClaimError(f"{source}: {problem}", id)
    return msgspec.structs.replace(claim, id=id)


def _first_problem(claim: Claim) -> str | None:
    for key, text in (("lesson", Localized(en=claim.lesson)), ("text", claim.text), ("note", claim.note)):
        problem = line_problem(key, text, required=key != "note")
        if problem:
            return problem
    if parse_bound(claim.bound) is None:
        return f"bound = {claim.bound!r} is not allowed; allowed is {ALLOWED}"
    if claim.caveat and not claim.note.given():
        return "caveat = true needs a note that says what the caveat is"
    measure = claim.measure
    if measure.kind not in KINDS:
        return _not_one_of("measure.kind", measure.kind, KINDS)
    return _measure_problem(measure) or _samples_problem(measure.samples)


def _measure_problem(measure: Measure) -> str | None:
    """What does not belong to its kind, or is missing."""
    for key in ("samples", "compare", "name", "preset", "change", "mode", "passed"):
        if getattr(measure, key) and key not in KINDS[measure.kind]:
            return f"measure.{key} does not belong to a measure of kind {measure.kind}"
    match measure.kind:
        case "metric" if len(measure.samples) != 1:
            return f"measure.samples has {len(measure.samples)} entries; a metric is made of 1"
        case "comparison" if len(measure.samples) != 2:
            return f"measure.samples has {len(measure.samples)} entries; a comparison is made of 2"
        case "comparison" if measure.compare not in COMPARISONS:
            return _not_one_of("measure.compare", measure.compare, COMPARISONS)
        case "invariant" if measure.name not in INVARIANTS:
            return _not_one_of("measure.name", measure.name, INVARIANTS)
        case "invariant" if not measure.preset:
            return f"measure.preset is missing for {measure.name}"
        case "benchmark" if measure.name not in BENCHMARKS:
            return _not_one_of("measure.name", measure.name, BENCHMARKS)
        case "benchmark" if measure.mode not in MODES:
            return _not_one_of("measure.mode", measure.mode, MODES)
        case "benchmark" if measure.passed not in PASSES:
            return _not_one_of("measure.passed", measure.passed, PASSES)
    return None


def _samples_problem(samples: Iterable[Sample]) -> str | None:
    for index, sample in enumerate(samples):
        where = f"measure.samples[{index}]"
        if sample.quantity not in QUANTITIES:
            return _not_one_of(f"{where}.quantity", sample.quantity, QUANTITIES)
        if sample.take not in TAKES:
            return _not_one_of(f"{where}.take", sample.take, TAKES)
        if sample.start >= sample.stop:
            return f"{where}.start = {sample.start} is not before stop = {sample.stop}"
    return None


def _not_one_of(key: str, value: str, allowed: Iterable[str]) -> str:
    return f"{key} = {value!r} is not allowed; allowed: {choices(value, allowed)}"
