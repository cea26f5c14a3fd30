"""Run files of other people's models, and a script that is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gradtui.i18n import Words
from gradtui.metrics import CLIPPED, SITE_METRICS, STREAM_METRICS
from gradtui.runs.schema import Event, Frame, Site
from gradtui.runs.writer import RunWriter

ALL = (*SITE_METRICS, CLIPPED)


def stack(name: str, layers: int, first_layer: int = 0, first_point: int = 0, group: str = "") -> list[Site]:
    """The sites of one stack of blocks."""
    sites = [Site(f"{name} (input)", None, "input", first_point, group)]
    return sites + [
        Site(f"{name}.{layer}", first_layer + layer, "block", first_point + layer + 1, group)
        for layer in range(layers)
    ]


def encoder_decoder() -> list[Site]:
    """Two stacks of four, an embedding before and a head behind them."""
    one, two = "model.encoder.layers", "model.decoder.layers"
    return [
        Site("embed", None, "module"),
        *stack(one, 4, 0, 0, one),
        *stack(two, 4, 4, 5, two),
        Site("head", None, "module"),
    ]


def modules(count: int) -> list[Site]:
    """A model without a stack."""
    return [Site(f"features.{index}", index, "module") for index in range(count)]


def frame(
    sites: Sequence[Site],
    metrics: Sequence[str],
    step: int,
    *,
    loss: float | None = 3.0,
    change: Callable[[int, np.ndarray], None] | None = None,
) -> Frame:
    """Ones, where there can be a value."""
    values = np.ones((len(metrics), len(sites)), np.float32)
    for row, metric in enumerate(metrics):
        for column, site in enumerate(sites):
            if site.kind == "input" and metric not in STREAM_METRICS:
                values[row, column] = -1
            if metric in STREAM_METRICS and site.stream is None:
                values[row, column] = -1
    if change is not None:
        change(step, values)
    return Frame(step, 1000.0 + step, 0.05, loss, 1e-3, values)


def record(
    path: Path,
    sites: Sequence[Site],
    metrics: Sequence[str] = SITE_METRICS,
    *,
    steps: int = 20,
    every: int = 1,
    loss: float | None = 3.0,
    change: Callable[[int, np.ndarray], None] | None = None,
    events: Sequence[Event] = (),
    status: str | None = "done",
    reason: str = "",
    **facts: object,
) -> Path:
    """A finished run of somebody's script; `status` None leaves it running."""
    base = {"source": "script", "name": path.stem, "script": f"{path.stem}.py --lr 1e-3", "device": "cpu"}
    writer = RunWriter(path, sites, {**base, "every": every, **facts}, metrics=metrics)
    for step in range(0, steps * every, every):
        writer.append(frame(sites, metrics, step, loss=loss, change=change))
    for event in events:
        writer.event(event)
    writer.close(status, reason)
    return path


class FakeScript:
    """Prints and ends when the test says so."""

    def __init__(self, directory: Path, title: str = "train.py") -> None:
        self.run = directory / "runs" / "live.gradtui"
        self.log = directory / "live.log"
        self.log.write_bytes(b"")
        self.title = title
        self.pid = 4242
        self.exit_code: int | None = None
        self.calls: list[str] = []
        self.said: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def runs(self) -> list[Path]:
        return sorted(self.run.parent.glob("live*.gradtui")) if self.run.parent.is_dir() else []

    def say(self, text: str) -> None:
        self.said.append(text)

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def terminate(self) -> None:
        self.calls.append("terminate")

    def detach(self) -> None:
        self.calls.append("detach")

    def prints(self, text: str) -> None:
        with self.log.open("ab") as file:
            file.write(text.encode())


EN, ZH = Words("en"), Words("zh")
