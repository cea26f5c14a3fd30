"""What a 140×44 screen costs to redraw: its four charts, also of a thousand layers, and the table of sites."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradtui.bench import Result, Size, summarise
from gradtui.bench.made_up import preset_sites, script_sites, write_run
from gradtui.bench.screen import Screen

LAYERS, STEPS, RUNS = 12, 400, 4
DEEP_LAYERS, DEEP_STEPS = 1000, 300
DEEP_METRICS = ("stream_grad", "grad_norm", "act_rms", "weight_norm")
SORTS = ("", "stream_grad", "grad_norm")


def bench_redraw(size: Size) -> list[Result]:
    """Two depth charts, loss and heat map with one focused and three pinned runs, data read each time."""
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"{number}.gradtui" for number in range(RUNS)]
        for file in files:
            write_run(file, preset_sites(LAYERS), 20 if size.quick else STEPS)
        with contextlib.closing(Screen(files)) as screen:
            times = [_milliseconds(screen.draw_charts) for _ in range(size.count(20))]
    return [summarise("redraw: all charts, 140×44", "an absolute time", times, "≤ 40", "ms")]


def bench_sites(size: Size) -> list[Result]:
    """All charts of a thousand layers; the table of two thousand sites: read, filtered, sorted, a page made."""
    layers, steps = (20, 20) if size.quick else (DEEP_LAYERS, DEEP_STEPS)
    charts, table = [], []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "deep.gradtui"
        write_run(file, script_sites(layers), steps, metrics=DEEP_METRICS)
        with contextlib.closing(Screen([file])) as screen:
            for number in range(size.count(10)):
                sort = SORTS[number % len(SORTS)]
                charts.append(_milliseconds(screen.draw_charts))
                table.append(_milliseconds(partial(screen.make_site_table, r"\.\d+$", sort)))
    return [
        summarise(f"sites: charts of {layers:,} layers", "an absolute time", charts, "≤ 60", "ms"),
        summarise(f"sites: table of {2 * layers:,}", "an absolute time", table, "≤ 30", "ms"),
    ]


def _milliseconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - began)
