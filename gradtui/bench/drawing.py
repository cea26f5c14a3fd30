"""What the four charts of a 140×44 screen cost to redraw."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from gradtui.bench import Result, summarise
from gradtui.runs.schema import METRICS, Frame, Site
from gradtui.runs.writer import RunWriter
from gradtui.ui import painting
from gradtui.ui.i18n import Words
from gradtui.ui.lab import Lab

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
            values = random.lognormal(size=(len(METRICS), len(sites))).astype(np.float32)
            writer.append(Frame(step, time.time(), 0.02, 3 + 3 / (step + 1), 1e-3, values))


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
            lanes = lab.shown
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
            times.append(1000 * (time.perf_counter() - began))
        lab.close()
    return [summarise("redraw: all charts, 140×44", "an absolute time", times, "≤ 40", "ms")]
