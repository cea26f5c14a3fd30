"""Run files as something else: tables, NumPy archives, figures for a paper."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.runs.reader import RunReader
from gradtui.runs.thinning import Gap

LOSS = "loss"  # asked for like a metric, though it has no site


class ExportError(Exception):
    """What cannot be exported, and why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is wanted: metrics in order (LOSS may be one), and steps start ≤ s < stop."""

    metrics: tuple[str, ...]
    start: int
    stop: int

    def left_out(self, run: RunReader) -> Gap | None:
        """The chosen steps of which only a summary is left."""
        if run.thinned is None:
            return None
        start, stop = max(self.start, run.thinned[0]), min(self.stop, run.thinned[1])
        return (start, stop) if start < stop else None


def choose(run: RunReader, metrics: tuple[str, ...], start: int | None, stop: int | None) -> Choice:
    """A choice that `run` can answer; raises ExportError, which says what there is."""
    known = (*run.metrics, LOSS)
    for name in metrics:
        if name not in known:
            raise ExportError(f"{run.path} has no metric {name!r}; it has: {', '.join(known)}")
    first, last = run.first_step, run.last_step
    if last < 0:
        raise ExportError(f"{run.path} has no recorded step yet")
    begin, end = first if start is None else start, last + 1 if stop is None else min(stop, last + 1)
    choice = Choice(tuple(dict.fromkeys(metrics)), begin, end)
    if begin >= end or not begin <= run.nearest_step(end - 1) < end:
        if begin < end and choice.left_out(run) is not None:
            raise ExportError(f"{run.path} has kept only a summary of the steps in that range")
        raise ExportError(f"{run.path} has no recorded step in that range; its steps are {first} to {last}")
    return choice
