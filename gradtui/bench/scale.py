"""What a long run and a large model cost: writing, opening, and reading the windows that charts show."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gradtui.bench import Result, summarise
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import PYRAMID_FACTOR, Frame, Site
from gradtui.runs.writer import RunWriter

SHORT, LONG = 1_000, 100_000
SITES, MANY_SITES = 100, 2_000
COLUMNS = 100  # of a chart
TIMES = 30
METRIC = "grad_norm"
BASELINE = f"a run of {SHORT:,} steps"


def made_up_run(path: Path, steps: int, sites: int, pace: float = 0.0) -> float:
    """Write a run of two sites to a layer, as if each took `pace` seconds; returns those that writing one took."""
    places = [
        Site(f"layers.{i // 2}.{'ab'[i % 2]}", i // 2, "module", i // 2 if i % 2 else None) for i in range(sites)
    ]
    values = np.random.default_rng(0).lognormal(size=(64, len(SITE_METRICS), sites)).astype(np.float32)
    began = time.perf_counter()
    now = 0.0
    with RunWriter(path, places, {"name": "made up", "steps": steps}, clock=lambda: now) as writer:
        for step in range(steps):
            now += pace  # where it stands still, commits are as large as they get
            writer.append(Frame(step, 0.0, 0.02, 3 + 3 / (step + 1), 1e-3, values[step % len(values)]))
    return (time.perf_counter() - began) / steps


def open_and_look(path: Path) -> None:
    """What it takes until a run can be drawn: the file, its ends, its events."""
    with contextlib.closing(RunReader(path)) as run:
        run.frame(run.first_step)
        run.frame(run.last_step)
        run.events()
        run.seconds_per_step()
        run.loss_window(0, run.last_step + 1, 8)


def read_everything(run: RunReader) -> None:
    """One metric and the loss over all steps, finer towards the first, as a chart with logarithmic steps."""
    start, stop = 0, PYRAMID_FACTOR * COLUMNS
    while start <= run.last_step:
        run.window(METRIC, start, min(stop, run.last_step + 1), COLUMNS)
        run.loss_window(start, min(stop, run.last_step + 1), COLUMNS)
        start, stop = stop, stop * PYRAMID_FACTOR


def bench_scale(repeat: int) -> list[Result]:
    """A run of 100,000 steps (times `repeat`) of 100 sites against a short one; a model of 2,000 sites."""
    results = []
    with tempfile.TemporaryDirectory() as directory:
        short, long, wide = (Path(directory) / f"{name}.gradtui" for name in ("short", "long", "wide"))
        made_up_run(short, SHORT, SITES)
        made_up_run(long, LONG * repeat, SITES)
        label = f"{LONG * repeat:,} × {SITES}"
        results.append(_ratio(f"scale: open {label}", lambda: open_and_look(long), lambda: open_and_look(short)))
        with contextlib.closing(RunReader(long)) as a, contextlib.closing(RunReader(short)) as b:
            end = a.last_step + 1
            windows: dict[str, Callable[[], object]] = {
                "all steps": lambda: a.window(METRIC, 0, end, COLUMNS),
                "last 1,000": lambda: a.window(METRIC, end - SHORT, end, COLUMNS),
                "the middle half": lambda: a.window(METRIC, end // 4, 3 * end // 4, COLUMNS),
            }
            for name, read in windows.items():
                small = _ratio(f"scale: window, {name}", read, lambda: b.window(METRIC, 0, SHORT, COLUMNS))
                results.append(small)
            everything = _ratio(
                "scale: log steps, all", lambda: read_everything(a), lambda: read_everything(b), "≤ 10"
            )
            results.append(everything)
        seconds = made_up_run(wide, SHORT, MANY_SITES, pace=0.1)
        results.append(
            summarise(f"scale: write {MANY_SITES:,} sites", "an absolute time", [1000 * seconds], "≤ 1", "ms")
        )
        with contextlib.closing(RunReader(wide)) as run:
            times = [1000 * _time(lambda: run.window(METRIC, 0, SHORT, COLUMNS)) for _ in range(TIMES)]
        results.append(summarise(f"scale: window, {MANY_SITES:,} sites", "an absolute time", times, "≤ 40", "ms"))
    return results


def _ratio(
    name: str, subject: Callable[[], object], baseline: Callable[[], object], budget: str = "≤ 5"
) -> Result:
    """Interleaved, so that a busy machine slows both."""
    ratios = []
    for _ in range(TIMES):
        reference = _time(baseline)
        ratios.append(_time(subject) / reference)
    return summarise(name, BASELINE, ratios, budget)


def _time(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
