"""From what was measured to a verdict: a claim's value for each seed, held against its bound."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import numpy as np

from gradtui.analysis.quantities import QUANTITIES, TAKES, Numbers, read_fact, read_series
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.verify import VerifyError
from gradtui.verify.bounds import Bound
from gradtui.verify.claims import Claim, Sample
from gradtui.verify.store import Store

Verdict = Literal["holds", "holds with a caveat", "does not hold here"]
HOLDS: Verdict = "holds"
CAVEAT: Verdict = "holds with a caveat"
FAILS: Verdict = "does not hold here"


def judge(bound: Bound, values: Sequence[float], *, caveat: bool) -> Verdict:
    """What the values of all seeds, at least one, say.

    A claim holds where every seed lies within the bound. Where the median does but some seed does not, that is
    a caveat, as is the one that a claim itself carries.
    """
    inside = [bound.contains(value) for value in values]
    if inside and all(inside):
        return CAVEAT if caveat else HOLDS
    return CAVEAT if bound.contains(median(values)) else FAILS


def median(values: Sequence[float]) -> float:
    """The middle value (the lower of two); NaN where any value is NaN or there is none."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan
    return statistics.median_low(values)


def claim_values(claim: Claim, keys: Sequence[str], store: Store) -> list[float]:
    """The value for each seed. `keys` are the claim's in the plan. Raises VerifyError."""
    samples = claim.measure.samples
    if not samples:
        return [_kept(store, key) for key in keys]
    values = []
    for index, key in enumerate(keys):
        try:
            with contextlib.closing(RunReader(store.run(key))) as run:
                values.append(sample_value(run, samples[index % len(samples)]))
        except RunError as error:
            raise VerifyError(str(error)) from error
    if claim.measure.kind == "metric":
        return values
    return compare(claim.measure.compare, values[0::2], values[1::2])


def _kept(store: Store, key: str) -> float:
    value = store.value(key)
    if value is None:
        raise VerifyError("it was not measured")
    return value


def sample_value(run: RunReader, sample: Sample) -> float:
    """The number that `sample` takes from `run`; NaN where the run ended before its last step.

    Raises VerifyError where the run does not hold what it takes, RunError where it cannot be read.
    """
    quantity = QUANTITIES[sample.quantity]
    if quantity.is_fact:
        if sample.quantity not in run.facts:
            raise VerifyError(f"the run of {sample.preset} has not measured {sample.quantity}")
        return read_fact(run, sample.quantity)
    series = read_series(run, quantity, sample.start, sample.stop)
    # Of a run that diverged, how often a step was not finite can still be said.
    if len(series) < sample.stop - sample.start and sample.quantity != "nonfinite":
        return math.nan
    return take(sample, series)


def take(sample: Sample, series: Numbers) -> float:
    """One number of all the steps of `sample`; NaN of none.

    Steps at which a sampled quantity was not recorded are left out.
    """
    if QUANTITIES[sample.quantity].is_sampled:
        series = series[~np.isnan(series)]
    return TAKES[sample.take](series) if len(series) else math.nan


def compare(how: str, firsts: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Two samples as one number for each seed; `how` is one of `claims.COMPARISONS`. Raises VerifyError."""
    pairs = list(zip(firsts, seconds, strict=True))
    match how:
        case "difference":
            return [a - b for a, b in pairs]
        case "distance":
            return [abs(a - b) for a, b in pairs]
        case "ratio":
            return [a / b if b else math.nan for a, b in pairs]
        case "noise":
            if len(pairs) < 2:
                raise VerifyError("how much seeds differ cannot be said from one; it needs --seeds 2 or more")
            if not all(math.isfinite(value) for value in (*firsts, *seconds)):
                return [math.nan] * len(pairs)
            noise = statistics.stdev(seconds)
            return [abs(a - b) / noise if noise else math.nan for a, b in pairs]
    raise AssertionError(how)
