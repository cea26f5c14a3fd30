"""A run in one JSON object, read back from its file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradtui.analysis.alarms import ALARMS
from gradtui.analysis.flow import Gauge
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Flags

LOSS_TAIL = 10
SPEED_STEPS = 10_000  # the newest ones, of which the median duration is taken


def summarise(run: RunReader) -> dict[str, Any]:
    """Loss, flow and the last step's metrics of `run`; non-finite numbers as None.

    `grad_norm` is per site, `act_rms` and `stream_grad` are per stream point x_0 … x_L; a list is empty where the
    run has no such metric. `flow_ratio` is over the steps that have a frame; "thinned" names those that have none
    any more.
    """
    stream = list(run.stream_sites)
    ratios = _flow_ratios(run)
    finite = ratios[np.isfinite(ratios)]
    first, last = run.frame(run.first_step), run.frame(run.last_step)
    values = {} if last is None else dict(zip(run.metrics, last.values, strict=True))
    tail = run.loss_window(run.last_step + 1 - LOSS_TAIL, run.last_step + 1, LOSS_TAIL)
    seconds = run.seconds_per_step(SPEED_STEPS)
    facts = run.facts
    names = [site.name for site in run.sites]

    def of_stream(metric: str) -> list[float | None]:
        return _numbers(values[metric][stream]) if metric in values else []

    return {
        "preset": facts.get("name") if facts.get("source", "preset") == "preset" else None,
        "name": facts.get("name"),
        "script": facts.get("script"),
        "run": str(run.path.absolute()),
        "seed": facts.get("seed"),
        "device": facts.get("device"),
        "steps": run.recorded,
        "thinned": None if run.thinned is None else list(run.thinned),
        "loss": {
            "first": None if first is None or first.frame.loss is None else _number(first.frame.loss),
            "last": None if tail.nonfinite.any() else _number(tail.mean[~np.isnan(tail.mean)]),
        },
        "flow_ratio": {
            "first": _number(ratios[:1]),
            "last": _number(ratios[-1:]),
            "min": _number(finite.min(initial=np.inf)),
        },
        "sites": [{"name": s.name, "layer": s.layer, "kind": s.kind} for s in run.sites],
        "grad_norm": _numbers(values.get("grad_norm", ())),
        "act_rms": of_stream("act_rms"),
        "stream_grad": of_stream("stream_grad"),
        "alarms": [
            {"kind": e.kind, "step": e.step, "site": None if e.site is None else names[e.site]}
            for e in run.events()
            if e.kind in ALARMS
        ],
        "steps_per_second": _number(1 / seconds if seconds > 0 else np.nan),
    }


def _flow_ratios(run: RunReader) -> NDArray[np.float64]:
    """The flow ratio of every frame, as the verdict has it; NaN where a gradient is not finite."""
    metrics = [name for name in ("stream_grad", "grad_norm") if name in run.metrics]
    gauge = Gauge.of(run.sites, metrics)
    if not metrics or not gauge.streams:
        return np.empty(0)
    ratios = []
    for block in run.blocks(metrics):
        bad: Flags = np.logical_not(np.isfinite(block.values).all(axis=(1, 2)))
        plain: Flags = np.zeros(bad.shape, dtype=np.bool_)
        ratio = np.full(bad.shape, np.nan)
        if len(gauge.streams) == 1 and gauge.stream_row is not None and len(gauge.streams[0]) > 1:
            # The common case, where nothing is left out, for all steps at once.
            stream = block.values[:, gauge.stream_row, gauge.streams[0]].astype(np.float64)
            plain = ~bad & (stream > 0).all(axis=1)
            ratio[plain] = stream[plain, 0] / stream[plain, -1]
        for row in np.flatnonzero(~plain & ~bad):
            ratio[row] = gauge.read(block.values[row]).ratio
        ratios.append(ratio)
    return np.concatenate(ratios) if ratios else np.empty(0)


def _number(values: ArrayLike) -> float | None:
    """The mean of `values`, or None where that is not a finite number."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return None
    with np.errstate(all="ignore"):
        mean = float(array.mean())
    return mean if np.isfinite(mean) else None


def _numbers(values: ArrayLike) -> list[float | None]:
    return [_number(value) for value in np.asarray(values).ravel()]
