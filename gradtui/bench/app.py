"""What a user of the lab waits for: the first frame, the first data, a key; and what the lab costs and keeps."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gradtui.bench import Result, Size, screen, summarise
from gradtui.bench.terminal import Terminal
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader

BARE_APP = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    BINDINGS = [("q", "quit", "")]
    def compose(self):
        yield Static("bare-frame")
Bare().run()
"""
BARE_TORCH = """
import torch
torch.set_num_threads(1)
from gradtui.bench.training import BareLoop, bench_preset
BareLoop(bench_preset(), torch.device("cpu")).step()
"""
BARE_SPEED = """
import sys, time
from gradtui.bench.training import BareLoop, bench_preset, prepare
loop = BareLoop(bench_preset(), prepare())
times = []
end = time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < end:
    began = time.perf_counter()
    loop.step()
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""
FOCUSED, PINNED = "post-ln", "pre-ln"  # the lab's first presets, which start with it
FIRST_STEPS = 20  # of a lane, which are slower


@contextlib.contextmanager
def _lab() -> Iterator[tuple[Terminal, Path]]:
    """The lab in a terminal, with a data directory of its own: the terminal and the directory of its runs."""
    argv = [sys.executable, "-m", "gradtui", "--device", "cpu", "--language", screen.LANGUAGE]
    with (
        tempfile.TemporaryDirectory() as data,
        Terminal(argv, {"GRADTUI_DATA_DIR": data, "COLORTERM": "truecolor"}) as lab,
    ):
        yield lab, Path(data) / "runs"


def _wait_for_steps(lab: Terminal, runs: Path, preset: str, steps: int = 1, timeout: float = 60) -> Path:
    """The run file of `preset`, as soon as it holds `steps` steps; raises TimeoutError."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for path in runs.glob(f"{preset}-s*.gradtui"):
            with contextlib.suppress(RunError), contextlib.closing(RunReader(path)) as run:
                if run.last_step + 1 >= steps:
                    return path
        lab.pump(0.005)
    raise TimeoutError(f"{preset} did not make {steps} steps within {timeout} s in {runs}")


def bench_start(size: Size) -> list[Result]:
    """First frame against a bare Textual app's; first data against torch, model and one step."""
    frames, labs, data_points = [], [], []
    for _ in range(max(3, size.repeat) if not size.quick else 1):
        with Terminal([sys.executable, "-c", BARE_APP], {}) as bare:
            bare.wait_for("bare-frame")
            bare_frame = time.perf_counter() - bare.began
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", BARE_TORCH], check=True)
        bare_data = time.perf_counter() - began
        with _lab() as (lab, runs):
            lab.wait_for(screen.LOADING)
            frames.append((time.perf_counter() - lab.began) / bare_frame)
            lab.wait_for(screen.OPENED)
            labs.append((time.perf_counter() - lab.began) / bare_frame)
            _wait_for_steps(lab, runs, FOCUSED)
            data_points.append((time.perf_counter() - lab.began) / bare_data)
    return [
        summarise("start: first frame", "a bare Textual app", frames, "≤ 1.5"),
        summarise("start: the lab, empty charts", "a bare Textual app", labs, "none"),
        summarise("start: first data", "import torch, build, one step", data_points, "≤ 1.5"),
    ]


def bench_keys(size: Size) -> list[Result]:
    """From the key that shows the next metric until it is on the screen, two lanes at full speed."""
    times = []
    with _lab() as (lab, runs):
        for preset in (FOCUSED, PINNED):
            _wait_for_steps(lab, runs, preset)
        titles = screen.heat_map_titles()
        shown = lab.wait_for(*titles).text
        for _ in range(size.count(10, 3)):
            for _ in range(3):
                lab.pump(0.1)
            lab.press(screen.typed("metric"))
            seen = lab.wait_for(*(title for title in titles if title != shown), timeout=10)
            times.append(1000 * seen.seconds)
            shown = seen.text
    return [summarise("keys: key to repaint", "an absolute time", times, "≤ 100", "ms")]


def bench_beside(size: Size) -> list[Result]:
    """A lane's speed with the lab open on the other core, against the bare loop's alone."""
    seconds = 1.5 if size.quick else 8.0
    pause, pin = screen.typed("pause"), screen.typed("pin")
    speeds = []
    for _ in range(max(2, size.repeat) if not size.quick else 1):
        run = subprocess.run(
            [sys.executable, "-c", BARE_SPEED, str(seconds)], check=True, capture_output=True, text=True
        )
        bare = float(run.stdout)
        with _lab() as (lab, runs):
            _wait_for_steps(lab, runs, FOCUSED)
            # The second preset is paused and no longer pinned: one lane trains, the screen has the other core.
            lab.press(f"2{pause}1{pin}2{pin}1")
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                lab.pump(0.05)
            path = _wait_for_steps(lab, runs, FOCUSED, FIRST_STEPS + 3)
            with contextlib.closing(RunReader(path)) as reader:
                steps = [reader.frame(step) for step in range(FIRST_STEPS, reader.last_step)]
        walls = np.diff([snapshot.frame.wall for snapshot in steps if snapshot is not None])
        speeds.append(bare / float(np.median(walls)))
    return [summarise("beside: steps/s with the lab open", "the bare loop alone", speeds, "≥ 0.9")]


def bench_soak(size: Size) -> list[Result]:
    """Resident memory of the screen and of its lanes, `size.repeat` minutes long.

    Each half of a minute one of the two lanes restarts with the next seed.
    """
    half_minute = 1.0 if size.quick else 30.0
    restart = screen.typed("reseed")
    sizes: list[tuple[float, float]] = []
    with _lab() as (lab, runs):
        _wait_for_steps(lab, runs, FOCUSED)
        began = time.monotonic()
        for number in range(2 * max(2, size.repeat)):
            while time.monotonic() < began + half_minute * (number + 1):
                lab.pump(0.1)
                lab.seen = b""
            lab.press(restart if number % 2 else f"2{restart}1")
            sizes.append((_resident(lab.pid), sum(map(_resident, _descendants(lab.pid)))))
    warm = len(sizes) // 4
    own, lanes = (
        [now[part] / max(then[part] for then in sizes[: warm + 1]) for now in sizes[warm:]] for part in (0, 1)
    )
    minutes = f"the first {max(1, warm // 2)} minutes"
    return [
        summarise(f"soak: screen's memory, {size.repeat} min", minutes, own, "≤ 1.05"),
        summarise(f"soak: engine's memory, {size.repeat} min", minutes, lanes, "≤ 1.05"),
    ]


def _resident(pid: int) -> float:
    """Resident memory in MiB; 0 for a process that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, as /proc lists them."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            children += [int(child), *_descendants(int(child))]
    return children
