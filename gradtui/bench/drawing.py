"""What a 140×44 screen costs to redraw: its four charts, also of a thousand layers, and the table of sites."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradtui.bench import Result, summarise
from gradtui.i18n import Words
from gradtui.metrics import SITE_METRICS
from gradtui.runs.schema import Frame, Site
from gradtui.runs.writer import RunWriter
from gradtui.ui.charts import painting
from gradtui.ui.session.lane import LaneView
from gradtui.ui.session.session import Lab
from gradtui.ui.session.site_table import Filter, SiteTable

LAYERS, STEPS = 12, 400
PANE = (51, 17)


def _made_up_run(path: Path, seed: int) -> None:
    sites = [Site("embedding", None, "embedding", 0)]
    for layer in range(LAYERS):
        sites.append(Site(f"layers.{layer}.mixer", layer, "mixer"))
        sites.append(Site(f"layers.{layer}.feedforward", layer, "feedforward", layer + 1))
    random = np.random.default_rng(seed)
    with RunWriter(path, sites, {"name": f"made up {seed}", "seed": seed, "steps": STEPS}) as writer:
        for step in range(STEPS):
            values = random.lognormal(size=(len(SITE_METRICS), len(sites))).astype(np.float32)
            writer.append(Frame(step, time.time(), 0.02, 3 + 3 / (step + 1), 1e-3, values))


DEEP_LAYERS, DEEP_STEPS, DEEP_METRICS = 1000, 300, ("stream_grad", "grad_norm", "act_rms", "weight_norm")
TABLE = (104, 40)


def _deep_run(path: Path) -> None:
    """A thousand blocks and a thousand more sites beside them."""
    sites = [Site("h (input)", None, "input", 0)]
    sites += [Site(f"transformer.h.{layer}", layer, "block", layer + 1) for layer in range(DEEP_LAYERS)]
    sites += [Site(f"extra.{number}", None, "module") for number in range(DEEP_LAYERS - 1)]
    random = np.random.default_rng(0)
    facts = {"name": "deep", "source": "script"}
    with RunWriter(path, sites, facts, metrics=DEEP_METRICS) as writer:
        for step in range(DEEP_STEPS):
            values = random.lognormal(size=(len(DEEP_METRICS), len(sites))).astype(np.float32)
            writer.append(Frame(step, time.time(), 0.02, 3 + 3 / (step + 1), 1e-3, values))


def bench_sites(repeat: int) -> list[Result]:
    """All charts of a thousand layers; the table of two thousand sites: read, filtered, sorted, a page made."""
    charts: list[float] = []
    table: list[float] = []
    words = Words("en")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "deep.gradtui"
        _deep_run(file)
        lab = Lab.of_files([file])
        for number in range(10 * repeat):
            began = time.perf_counter()
            _draw_all(lab.shown, words)
            charts.append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            rows = SiteTable(filter=Filter.of(r"\.\d+$"), sort=("", "stream_grad", "grad_norm")[number % 3])
            rows.update(lab.shown[0], None)
            for site in rows.rows[: TABLE[1]]:
                rows.note(site, words)
                for metric in rows.columns:
                    rows.cell(site, metric)
            table.append(1000 * (time.perf_counter() - began))
        lab.close()
    return [
        summarise("sites: charts of 1,000 layers", "an absolute time", charts, "≤ 60", "ms"),
        summarise("sites: table of 2,000", "an absolute time", table, "≤ 30", "ms"),
    ]


def _draw_all(lanes: Sequence[LaneView], words: Words) -> None:
    for painter in (
        painting.depth_painter(lanes, "stream_grad", None, True, words, ""),
        painting.depth_painter(lanes, "act_rms", None, False, words, ""),
        painting.heat_painter(
            lanes[0],
            "stream_grad",
            None,
            log=True,
            log_steps=True,
            mode="color",
            words=words,
            empty="",
        ),
        painting.loss_painter(lanes, None, log_steps=True, words=words, empty=""),
    ):
        painter(*PANE)


def bench_redraw(repeat: int) -> list[Result]:
    """Two depth charts, loss and heat map with one focused and three pinned runs, data read anew each time."""
    words, times = Words("en"), []
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"{seed}.gradtui" for seed in range(4)]
        for seed, file in enumerate(files):
            _made_up_run(file, seed)
        lab = Lab.of_files(files)
        for _ in range(20 * repeat):
            began = time.perf_counter()
            _draw_all(lab.shown, words)
            times.append(1000 * (time.perf_counter() - began))
        lab.close()
    return [summarise("redraw: all charts, 140×44", "an absolute time", times, "≤ 40", "ms")]
