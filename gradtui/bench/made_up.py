"""Run files of random numbers, for benchmarks that train nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradtui.metrics import SITE_METRICS
from gradtui.runs.schema import Frame, Site
from gradtui.runs.writer import RunWriter

DIFFERENT = 64  # frames with values of their own; later ones repeat them


def preset_sites(layers: int) -> list[Site]:
    """The sites of a preset's model, final norm and head left out."""
    sites = [Site("embedding", None, "embedding", 0)]
    for layer in range(layers):
        sites.append(Site(f"layers.{layer}.mixer", layer, "mixer"))
        sites.append(Site(f"layers.{layer}.feedforward", layer, "feedforward", layer + 1))
    return sites


def script_sites(layers: int) -> list[Site]:
    """The sites of a model from elsewhere: `layers` blocks, and as many sites beside them."""
    sites = [Site("h (input)", None, "input", 0)]
    sites += [Site(f"transformer.h.{layer}", layer, "block", layer + 1) for layer in range(layers)]
    return [*sites, *(Site(f"extra.{number}", None, "module") for number in range(layers - 1))]


def write_run(
    path: Path, sites: Sequence[Site], steps: int, *, metrics: Sequence[str] = SITE_METRICS, pace: float = 0.0
) -> float:
    """Write a run of `steps` frames, `pace` seconds apart by the writer's clock; seconds that one append took.

    With a pace of 0 the writer's clock stands still, so that commits are as large as they get.
    """
    values = np.random.default_rng(0).lognormal(size=(min(steps, DIFFERENT), len(metrics), len(sites)))
    frames = values.astype(np.float32)
    now = 0.0
    facts = {"name": path.stem, "seed": 0, "steps": steps}
    began = time.perf_counter()
    with RunWriter(path, sites, facts, metrics=metrics, clock=lambda: now) as writer:
        for step in range(steps):
            now += pace
            writer.append(Frame(step, 0.0, 0.02, 3 + 3 / (step + 1), 1e-3, frames[step % len(frames)]))
    return (time.perf_counter() - began) / steps
