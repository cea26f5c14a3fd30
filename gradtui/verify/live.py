"""A preset's claims while it runs: which hold, which are still open. Cheap enough for each repaint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from gradtui.analysis.quantities import QUANTITIES, Numbers, read_series, read_spread
from gradtui.presets import Preset, unflatten
from gradtui.runs.reader import RunReader
from gradtui.verify.claims import Claim, Sample
from gradtui.verify.judge import compare, take
from gradtui.verify.store import experiment

Mark = Literal["holds", "not yet", "does not hold"]


@dataclass(frozen=True, slots=True)
class Marked:
    """A claim and where it stands at the run's last step. `value` is what is measured so far, NaN for nothing.

    `final` says that no later step can change the mark.
    """

    claim: Claim
    mark: Mark
    value: float
    final: bool


def claims_of(preset: Preset, claims: Iterable[Claim], run_facts: Mapping[str, object]) -> list[Claim]:
    """The claims that a run with these facts can decide by itself: all samples from `preset` as it stands.

    [] where the run is of a preset by this name with other settings: its curves say nothing of the claim.
    """
    recorded = run_facts.get("preset")
    try:
        same = experiment(unflatten(recorded)) == experiment(preset)
    except msgspec.ValidationError:
        same = False
    if not same:
        return []
    return [claim for claim in claims if _is_of(claim, preset.id)]


def _is_of(claim: Claim, preset: str) -> bool:
    samples = claim.measure.samples
    if not samples or claim.measure.compare == "noise":
        return False
    quantities = [QUANTITIES[sample.quantity] for sample in samples]
    if not all(not quantity.is_fact or (quantity.reading and len(samples) == 1) for quantity in quantities):
        return False
    return all(sample.preset == preset and not sample.change for sample in samples)


def marks(run: RunReader, claims: Iterable[Claim], before: Iterable[Marked] = ()) -> list[Marked]:
    """Where each of `claims` stands; `before` is what the last call returned, of which final marks are kept.

    Reads only the steps that open claims need, as of the run's last `refresh`. From the step on at which the
    learning rate was changed by hand, the run is no longer the claim's experiment: what was open stays "not yet".
    Raises RunError.
    """
    settled = {marked.claim.id: marked for marked in before if marked.final}
    changed = min((event.step for event in run.events() if event.kind == "lr"), default=None)
    seen: dict[tuple[str, int, int], Numbers] = {}
    return [settled.get(claim.id) or _mark(run, claim, changed, seen) for claim in claims]


def _mark(run: RunReader, claim: Claim, changed: int | None, seen: dict[tuple[str, int, int], Numbers]) -> Marked:
    end = run.last_step + 1 if changed is None else min(run.last_step + 1, changed)
    diverged = run.facts.get("status") == "diverged"
    samples = claim.measure.samples
    if QUANTITIES[samples[0].quantity].reading:
        return _mark_of_reading(run, claim, end)
    complete, numbers = True, []
    for sample in samples:
        series = _series(run, sample, min(end, sample.stop), seen)
        if series is None:  # the run does not record what the claim is about
            return Marked(claim, "not yet", float("nan"), False)
        complete = complete and len(series) == sample.stop - sample.start
        numbers.append(take(sample, series))
    value = numbers[0]
    if claim.measure.kind == "comparison":
        [value] = compare(claim.measure.compare, numbers[:1], numbers[1:])
    if complete:
        return Marked(claim, "holds" if claim.limits.contains(value) else "does not hold", value, True)
    if diverged:
        return Marked(claim, "does not hold", value, True)
    what = samples[0].take
    if claim.measure.kind == "metric" and what in ("min", "max") and np.isfinite(value):
        early = claim.limits.settled(value, "min" if what == "min" else "max")
        if early is not None:
            return Marked(claim, "holds" if early else "does not hold", value, True)
    return Marked(claim, "not yet", value, False)


def _mark_of_reading(run: RunReader, claim: Claim, end: int) -> Marked:
    """The mark of a claim about a reading: as it stands, and for good at the claim's last step."""
    [sample] = claim.measure.samples
    value = read_spread(run, QUANTITIES[sample.quantity], min(end, sample.stop) - 1)
    complete = end >= sample.stop
    holds = claim.limits.contains(value)
    return Marked(claim, "holds" if holds else "does not hold" if complete else "not yet", value, complete)


def _series(
    run: RunReader, sample: Sample, stop: int, seen: dict[tuple[str, int, int], Numbers]
) -> Numbers | None:
    """The sample's quantity up to step `stop`, kept in `seen`; None where the run does not record it."""
    quantity = QUANTITIES[sample.quantity]
    if not set(quantity.metrics) <= set(run.metrics):
        return None
    if stop <= sample.start:
        return np.empty(0)
    key = (sample.quantity, sample.start, stop)
    if key not in seen:
        seen[key] = read_series(run, quantity, sample.start, stop)
    return seen[key]
