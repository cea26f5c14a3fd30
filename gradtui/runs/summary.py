"""A finished run in one JSON object, read back from its file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gradtui.analysis.alarms import ALARMS
from gradtui.runs.reader import RunReader

LOSS_TAIL = 10


def summarise(run: RunReader) -> dict[str, Any]:
    """Loss, flow and the last step's metrics of `run`; non-finite numbers as None.

    `grad_norm` is per site, `act_rms` and `stream_grad` are per stream point x_0 … x_L.
    """
    losses = run.losses()
    stream = list(run.stream_sites)
    with np.errstate(all="ignore"):
        flow = run.metric("stream_grad")[:, stream].astype(np.float64)
        ratios = flow[:, 0] / flow[:, -1]
    finite = ratios[np.isfinite(ratios)]
    last = run.frame(run.last_step)
    values = {} if last is None else dict(zip(run.metrics, last.values, strict=True))
    seconds = run.seconds_per_step(last=1 << 30)
    facts = run.facts
    names = [site.name for site in run.sites]
    return {
        "preset": facts.get("name"),
        "run": str(run.path.absolute()),
        "seed": facts.get("seed"),
        "device": facts.get("device"),
        "steps": len(losses),
        "loss": {"first": _number(losses[:1]), "last": _number(losses[-LOSS_TAIL:])},
        "flow_ratio": {
            "first": _number(ratios[:1]),
            "last": _number(ratios[-1:]),
            "min": _number(finite.min(initial=np.inf)),
        },
        "sites": [{"name": s.name, "layer": s.layer, "kind": s.kind} for s in run.sites],
        "grad_norm": _numbers(values.get("grad_norm", ())),
        "act_rms": _numbers(np.asarray(values.get("act_rms", ()))[stream]) if values else [],
        "stream_grad": _numbers(np.asarray(values.get("stream_grad", ()))[stream]) if values else [],
        "alarms": [
            {"kind": e.kind, "step": e.step, "site": None if e.site is None else names[e.site]}
            for e in run.events()
            if e.kind in ALARMS
        ],
        "steps_per_second": _number(1 / seconds if seconds > 0 else np.nan),
    }


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
