"""Runs with values that are absent or not finite, and what is exported of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import RunMaker

from gradtui.export import Choice, choose
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Event, Frame

GRAD = SITE_METRICS.index("grad_norm")
Opened = Callable[..., tuple[RunReader, Choice]]


def spoil(frame: Frame) -> None:
    """No gradient at the first site; at step 1 NaN, ∞ and −∞ at the next three."""
    frame.values[GRAD, 0] = ABSENT
    if frame.step == 1:
        frame.values[GRAD, 1:4] = [np.nan, np.inf, -np.inf]


@pytest.fixture
def spoilt(make_run: RunMaker) -> Path:
    event = Event(1, "nonfinite", 1, None, "forward")
    return make_run("spoilt", losses=[3.0, float("nan"), float("inf")], change=spoil, events=[event])


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens a run and chooses of it: `opened(path, "grad_norm", start=1)`; all metrics and the loss by default."""
    readers = []

    def open_(
        path: Path, *metrics: str, start: int | None = None, stop: int | None = None
    ) -> tuple[RunReader, Choice]:
        run = RunReader(path)
        readers.append(run)
        return run, choose(run, metrics or (*run.metrics, "loss"), start, stop)

    yield open_
    for reader in readers:
        reader.close()
