"""Every test writes into a directory of its own and sees no settings of the developer's."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# Before anything loads NumPy or torch: the models are so small that a second thread costs more than it gives, and
# there is a test process for each core already. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pytest
from hypothesis import settings
from leftovers import Leftovers

from gradtui.metrics import SITE_METRICS
from gradtui.runs.schema import Event, Frame, Site
from gradtui.runs.writer import RunWriter

# The same examples in each session, and no limit on their time: a busy machine fails no test.
# `--hypothesis-profile=random` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Leftovers(config))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory with a short path, for sockets and as the TMPDIR of processes that are killed; removed after."""
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    os.environ.setdefault("TERM", "xterm-256color")


def make_sites(layers: int) -> list[Site]:
    """The sites of a Pre-LN model of `layers` layers, as the zoo lists them."""
    sites = [Site("embedding", None, "embedding", 0)]
    for layer in range(layers):
        sites.append(Site(f"layers.{layer}.mixer", layer, "mixer"))
        sites.append(Site(f"layers.{layer}.feedforward", layer, "feedforward", layer + 1))
    return [*sites, Site("final_norm", None, "norm"), Site("head", None, "head")]


def make_frame(sites: Sequence[Site], step: int, *, ratio: float = 1.0, loss: float = 3.0) -> Frame:
    """A frame whose stream gradient falls evenly in log from 1 at the last layer to `ratio` at layer 0."""
    values = np.ones((len(SITE_METRICS), len(sites)), np.float32)
    depth = np.linspace(0, 1, len(sites))
    stream = [index for index, site in enumerate(sites) if site.stream is not None]
    gradient = np.interp(depth, depth[[stream[0], stream[-1]]], [np.log(ratio), 0.0])
    values[SITE_METRICS.index("stream_grad")] = np.exp(gradient)
    values[SITE_METRICS.index("grad_norm")] = np.exp(gradient) * 2
    values[SITE_METRICS.index("act_rms")] = 1 + depth
    return Frame(step, 1000.0 + step, 0.02, loss, 1e-3, values)


RunMaker = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    """Writes a run file of synthetic frames: `make_run(layers=4, ratios=[...])`."""

    def make(
        name: str = "made",
        *,
        layers: int = 4,
        ratios: Sequence[float] = (1.0, 0.1, 0.001),
        losses: Sequence[float] | None = None,
        events: Sequence[Event] = (),
        facts: dict[str, object] | None = None,
        status: str = "done",
        change: Callable[[Frame], None] = lambda frame: None,
    ) -> Path:
        path = tmp_path / f"{name}.gradtui"
        sites = make_sites(layers)
        base = {"name": name, "seed": 0, "steps": len(ratios), "device": "cpu", "tokens_per_step": 512}
        with RunWriter(path, sites, {**base, **(facts or {})}) as writer:
            for step, ratio in enumerate(ratios):
                frame = make_frame(sites, step, ratio=ratio, loss=3.0 if losses is None else losses[step])
                change(frame)
                writer.append(frame)
            for event in events:
                writer.event(event)
            writer.close(status)
        return path

    return make
