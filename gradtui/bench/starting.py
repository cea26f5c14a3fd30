"""What a user waits for: the first frame, the first data, a key; and what the screen costs a lane."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gradtui.bench import Result, summarise
from gradtui.bench.terminal import Terminal
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
from gradtui.bench.training import BareLoop, bench_preset, _prepare
loop = BareLoop(bench_preset(), _prepare())
times = []
end = time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < end:
    began = time.perf_counter()
    loop.step()
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""
FIRST_FRAME, LAB_FRAME = "loading", "presets"
NEXT_METRIC = ("∂L/∂θ", "Δθ", "activation RMS by", "mean share", "∂L/∂x")


def _lab(data: str) -> Terminal:
    argv = [sys.executable, "-m", "gradtui", "--device", "cpu", "--language", "en"]
    return Terminal(argv, {"GRADTUI_DATA_DIR": data, "COLORTERM": "truecolor"})


def _newest_run(data: str, timeout: float = 60) -> Path:
    """The focused preset's run file, as soon as it holds a frame."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for path in Path(data, "runs").glob("post-ln-s*.gradtui"):
            reader = RunReader(path)
            last = reader.last_step
            reader.close()
            if last >= 0:
                return path
        time.sleep(0.005)
    raise TimeoutError(f"no data within {timeout} s in {data}")


def bench_start(repeat: int) -> list[Result]:
    """First frame against a bare Textual app's; first data against torch, model and one step."""
    frames, labs, data_points = [], [], []
    for _ in range(max(3, repeat)):
        with Terminal([sys.executable, "-c", BARE_APP], {}) as bare:
            bare.wait_for("bare-frame")
            bare_frame = time.perf_counter() - bare.began
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", BARE_TORCH], check=True)
        bare_data = time.perf_counter() - began
        with tempfile.TemporaryDirectory() as data, _lab(data) as lab:
            lab.wait_for(FIRST_FRAME)
            frames.append((time.perf_counter() - lab.began) / bare_frame)
            lab.wait_for(LAB_FRAME)
            labs.append((time.perf_counter() - lab.began) / bare_frame)
            _newest_run(data)
            data_points.append((time.perf_counter() - lab.began) / bare_data)
    return [
        summarise("start: first frame", "a bare Textual app", frames, "≤ 1.5"),
        summarise("start: the lab, empty charts", "a bare Textual app", labs, "none"),
        summarise("start: first data", "import torch, build, one step", data_points, "≤ 1.5"),
    ]


def bench_keys(repeat: int) -> list[Result]:
    """From a key to the first change on the screen, two lanes at full speed."""
    times = []
    with tempfile.TemporaryDirectory() as data, _lab(data) as lab:
        _newest_run(data)
        lab.wait_for("steps/s")
        for press in range(10 * max(1, repeat)):
            for _ in range(3):
                lab.pump(0.1)
            lab.press("m")
            times.append(1000 * lab.wait_for(NEXT_METRIC[press % len(NEXT_METRIC)], 10))
    return [summarise("keys: key to repaint", "an absolute time", times, "≤ 100", "ms")]


def bench_beside(repeat: int, seconds: float = 8.0) -> list[Result]:
    """A lane's speed with the lab open on the other core, against the bare loop's alone."""
    speeds = []
    for _ in range(max(2, repeat)):
        run = subprocess.run(
            [sys.executable, "-c", BARE_SPEED, str(seconds)], check=True, capture_output=True, text=True
        )
        bare = float(run.stdout)
        with tempfile.TemporaryDirectory() as data, _lab(data) as lab:
            path = _newest_run(data)
            lab.press("2 1p2p1")  # pause Pre-LN and let it go: one lane trains, the screen has the other core
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                lab.pump(0.05)
            reader = RunReader(path)
            steps = [reader.frame(step) for step in range(20, reader.last_step)]
            reader.close()
        walls = np.diff([snapshot.frame.wall for snapshot in steps if snapshot is not None])
        speeds.append(bare / float(np.median(walls)))
    return [summarise("beside: steps/s with the lab open", "the bare loop alone", speeds, "≥ 0.9")]


def bench_soak(repeat: int) -> list[Result]:
    """Resident memory of the screen and of its lanes, `repeat` minutes long, restarted every half a minute."""
    sizes: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as data, _lab(data) as lab:
        _newest_run(data)
        began = time.monotonic()
        for half_minute in range(2 * max(2, repeat)):
            while time.monotonic() < began + 30 * (half_minute + 1):
                lab.pump(0.1)
                lab.seen = b""
            lab.press("R" if half_minute % 2 else "2R1")
            sizes.append((_resident(lab.pid), sum(map(_resident, _descendants(lab.pid)))))
    warm = len(sizes) // 4
    own, lanes = (
        [now[part] / max(then[part] for then in sizes[: warm + 1]) for now in sizes[warm:]] for part in (0, 1)
    )
    minutes = f"the first {max(1, warm // 2)} minutes"
    return [
        summarise(f"soak: screen's memory, {repeat} min", minutes, own, "≤ 1.05"),
        summarise(f"soak: engine's memory, {repeat} min", minutes, lanes, "≤ 1.05"),
    ]


def _resident(pid: int) -> float:
    """Resident memory in MiB; 0 for a process that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            children += [int(child), *_descendants(int(child))]
    return children
