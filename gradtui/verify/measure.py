"""The value of a claim for each seed, from what the store holds."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence

import numpy as np

from gradtui.analysis.quantities import QUANTITIES, TAKES, Numbers, read_fact, read_series
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.verify import VerifyError
from gradtui.verify.claims import Claim, Sample
from gradtui.verify.store import Store


def sample_value(run: RunReader, sample: Sample) -> float:
    """The number that `sample` takes from `run`; NaN where the run ended before its last step.

    Raises VerifyError where the run does not hold what it takes, RunError where it cannot be read.
    """
    quantity = QUANTITIES[sample.quantity]
    if quantity.fact:
        if quantity.fact not in run.facts:
            raise VerifyError(f"the run of {sample.preset} has not measured {sample.quantity}")
        return read_fact(run, quantity)
    series = read_series(run, quantity, sample.start, sample.stop)
    if len(series) < sample.stop - sample.start:
        # It diverged. How often a step was not finite can still be said.
        return take(sample, series) if sample.quantity == "nonfinite" else math.nan
    return take(sample, series)


def take(sample: Sample, series: Numbers) -> float:
    """One number of all the steps of `sample`; NaN of none. Where a sparse quantity is not recorded is no step."""
    if QUANTITIES[sample.quantity].sparse:
        series = series[~np.isnan(series)]
    return TAKES[sample.take](series) if len(series) else math.nan


def claim_values(claim: Claim, keys: Sequence[str], store: Store) -> list[float]:
    """The value for each seed. `keys` are the claim's in the plan. Raises VerifyError."""
    if not claim.measure.samples:
        return [_kept(store, key) for key in keys]
    samples = claim.measure.samples
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


def compare(how: str, firsts: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Two samples as one number for each seed; raises VerifyError."""
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


def _kept(store: Store, key: str) -> float:
    value = store.value(key)
    if value is None:
        raise VerifyError("it was not measured")
    return value
