"""What a long run and a large model cost: writing, opening, and reading the windows that charts show."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gradtui.bench import Result, Size, summarise
from gradtui.bench.made_up import write_run
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import PYRAMID_FACTOR, Site

SITES = 100
COLUMNS = 100  # of a chart
METRIC = "grad_norm"


@dataclass(frozen=True, slots=True)
class Extent:
    """Steps of the short and of the long run, sites of the large model, and how often each read is timed."""

    short: int
    long: int
    sites: int
    times: int

    @classmethod
    def of(cls, size: Size) -> Extent:
        """100,000 steps (times `size.repeat`) against 1,000, and 2,000 sites; small ones in a quick run."""
        return cls(100, 1_000, SITES, 2) if size.quick else cls(1_000, 100_000 * size.repeat, 2_000, 30)


def bench_scale(size: Size) -> list[Result]:
    """A long run of 100 sites against a short one; a model of many sites."""
    extent = Extent.of(size)
    with tempfile.TemporaryDirectory() as directory:
        short, long, wide = (Path(directory) / f"{name}.gradtui" for name in ("short", "long", "wide"))
        write_run(short, _two_a_layer(SITES), extent.short)
        write_run(long, _two_a_layer(SITES), extent.long)
        results = _long_against_short(long, short, extent)
        seconds = write_run(wide, _two_a_layer(extent.sites), extent.short, pace=0.1)
        with contextlib.closing(RunReader(wide)) as run:
            read = partial(run.window, METRIC, 0, extent.short, COLUMNS)
            times = [1000 * _seconds(read) for _ in range(extent.times)]
    sites, absolute = f"{extent.sites:,} sites", "an absolute time"
    return [
        *results,
        summarise(f"scale: write {sites}", absolute, [1000 * seconds], "≤ 1", "ms"),
        summarise(f"scale: window, {sites}", absolute, times, "≤ 40", "ms"),
    ]


def _long_against_short(long: Path, short: Path, extent: Extent) -> list[Result]:
    """What is read of the long run, in units of what the same costs of the short one."""

    def ratio(
        name: str, subject: Callable[[], object], baseline: Callable[[], object], budget: str = "≤ 5"
    ) -> Result:
        """Interleaved, so that a busy machine slows both."""
        ratios = []
        for _ in range(extent.times):
            reference = _seconds(baseline)
            ratios.append(_seconds(subject) / reference)
        return summarise(name, f"a run of {extent.short:,} steps", ratios, budget)

    opened = ratio(
        f"scale: open {extent.long:,} × {SITES}", partial(open_and_look, long), partial(open_and_look, short)
    )
    with contextlib.closing(RunReader(long)) as a, contextlib.closing(RunReader(short)) as b:
        end = a.last_step + 1
        windows = {
            "all steps": (0, end),
            f"last {extent.short:,}": (end - extent.short, end),
            "the middle half": (end // 4, 3 * end // 4),
        }

        whole = partial(b.window, METRIC, 0, extent.short, COLUMNS)
        return [
            opened,
            *(
                ratio(f"scale: window, {name}", partial(a.window, METRIC, start, stop, COLUMNS), whole)
                for name, (start, stop) in windows.items()
            ),
            ratio("scale: log steps, all", partial(read_everything, a), partial(read_everything, b), "≤ 10"),
        ]


def _two_a_layer(sites: int) -> list[Site]:
    return [
        Site(f"layers.{i // 2}.{'ab'[i % 2]}", i // 2, "module", i // 2 if i % 2 else None) for i in range(sites)
    ]


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


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
