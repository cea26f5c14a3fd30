"""The engine as the screen drives it: a real supervisor process, commands in, events and run files out."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gradtui.engine import protocol
from gradtui.engine.client import EngineClient
from gradtui.engine.lane import LaneLoop
from gradtui.engine.protocol import LaneCommand, LaneStatus
from gradtui.engine.supervisor import MOST_WAITING, LaneProcess, share_cores
from gradtui.i18n import Localized
from gradtui.presets import ModelConfig, Preset, TrainingConfig
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader

SMALL = ModelConfig(layers=2, width=16, heads=2, context=16)


def preset(name: str, steps: int = 30, **training: object) -> Preset:
    recipe = TrainingConfig(steps=steps, batch=2, **training)  # type: ignore[arg-type]
    return Preset(title=Localized(en=name), id=name, model=SMALL, training=recipe)


class Driver:
    """An engine client that keeps the events it received."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[protocol.Event] = []
        self.ended: list[str] = []
        self.client = EngineClient(directory / "engine.log", self.events.append, self.ended.append)

    def start(self, one: Preset, seed: int = 0) -> Path:
        run = self.directory / f"{one.id}-{seed}-{len(self.events)}.gradtui"
        self.client.send(protocol.Start(one.id, one, seed, "cpu", str(run)))
        return run

    def states(self, lane: str) -> list[str]:
        return [e.state for e in self.events if isinstance(e, protocol.Lane) and e.lane == lane]

    def state(self, lane: str) -> str:
        return (self.states(lane) or [""])[-1]

    def last(self, lane: str) -> protocol.Lane:
        return [e for e in self.events if isinstance(e, protocol.Lane) and e.lane == lane][-1]

    async def until(self, true: Callable[[], object], timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not true():
            assert time.monotonic() < deadline, (self.events, self.ended, self.log())
            await asyncio.sleep(0.02)

    def log(self) -> str:
        path = self.directory / "engine.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    one = Driver(tmp_path)
    await one.client.start()
    yield one
    await one.client.stop()


def last_step(run: Path) -> int:
    with contextlib.closing(RunReader(run)) as reader:
        return reader.last_step


def is_gone(pid: int) -> bool:
    """No such process, or one that has ended and only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def family(pid: int) -> list[int]:
    """Every process below `pid`."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            children += [int(child), *family(int(child))]
    return children


async def test_a_preset_trains_to_its_last_step_and_rests(driver: Driver) -> None:
    run = driver.start(preset("a"))
    await driver.until(lambda: driver.state("a") == "done")
    assert driver.states("a")[0] == "starting"
    with contextlib.closing(RunReader(run)) as reader:
        assert (reader.last_step, reader.status) == (29, "done")
        assert reader.facts["preset"]["model"]["layers"] == 2
    driver.client.send(protocol.More("a", 5))
    await driver.until(lambda: driver.state("a") == "done" and last_step(run) == 34)


async def test_pause_single_step_and_go_on(driver: Driver) -> None:
    run = driver.start(preset("a", steps=100_000))
    await driver.until(lambda: run.exists() and last_step(run) >= 0)
    driver.client.send(protocol.Pause("a"))
    await driver.until(lambda: driver.state("a") == "paused")
    here = last_step(run)
    await asyncio.sleep(0.3)
    assert last_step(run) == here
    driver.client.send(protocol.Step("a"))
    await driver.until(lambda: last_step(run) == here + 1)
    await asyncio.sleep(0.2)
    assert last_step(run) == here + 1
    driver.client.send(protocol.Resume("a"))
    await driver.until(lambda: last_step(run) > here + 5)


async def test_another_seed_gives_another_run_and_the_same_seed_the_same_one(driver: Driver) -> None:
    losses = []
    for seed in (0, 0, 1):
        run = driver.start(preset("a", steps=5), seed)
        await driver.until(lambda run=run: driver.state("a") == "done" and driver.last("a").run == str(run))
        with contextlib.closing(RunReader(run)) as reader:
            losses.append(reader.losses().tolist())
    assert losses[0] == losses[1] != losses[2]


async def test_more_lanes_than_cores_wait_and_the_order_decides(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.client.slots = 1
    await driver.client.start()
    try:
        runs = {name: driver.start(preset(name, steps=100_000)) for name in "abc"}
        await driver.until(lambda: driver.state("a") == "running")
        await driver.until(lambda: driver.state("c") == "waiting")
        driver.client.send(protocol.Order(["c", "b"]))
        await driver.until(lambda: driver.state("c") == "running" and driver.state("a") == "waiting")
        still = last_step(runs["a"])
        await driver.until(lambda: last_step(runs["c"]) >= 3)
        assert last_step(runs["a"]) == still
        assert last_step(runs["b"]) == -1
    finally:
        await driver.client.stop()


async def test_a_killed_lane_is_reported_with_its_reason_and_the_others_go_on(driver: Driver) -> None:
    runs = {name: driver.start(preset(name, steps=100_000)) for name in "ab"}
    for run in runs.values():
        await driver.until(lambda run=run: run.exists() and last_step(run) >= 3)
    os.kill(driver.last("a").pid, signal.SIGKILL)
    await driver.until(lambda: driver.state("a") == "died")
    assert "signal 9 (SIGKILL" in driver.last("a").reason
    with contextlib.closing(RunReader(runs["a"])) as reader:
        assert reader.last_step >= 3
        assert reader.status == "died"
        assert "signal 9" in reader.facts["reason"]
    here = last_step(runs["b"])
    await driver.until(lambda: last_step(runs["b"]) > here + 3)
    again = driver.start(preset("a", steps=5))
    await driver.until(lambda: driver.last("a").state == "done" and last_step(again) == 4)


async def test_a_lane_that_is_ended_politely_loses_no_step(driver: Driver) -> None:
    run = driver.start(preset("a", steps=100_000))
    await driver.until(lambda: run.exists() and last_step(run) >= 3)
    os.kill(driver.last("a").pid, signal.SIGTERM)
    await driver.until(lambda: driver.state("a") in ("died", "stopped"))
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status in ("stopped", "died")
        assert len(reader.losses()) == reader.last_step + 1


async def test_a_preset_that_cannot_begin_says_why(driver: Driver, tmp_path: Path) -> None:
    missing = preset("a")
    run = tmp_path / "there.gradtui"
    run.write_text("precious")
    driver.client.send(protocol.Start("a", missing, 0, "cpu", str(run)))
    await driver.until(lambda: driver.state("a") == "died")
    assert "already exists" in driver.last("a").reason
    driver.client.send(protocol.Start("b", preset("b"), 0, "mps", str(tmp_path / "b.gradtui")))
    await driver.until(lambda: driver.state("b") == "died")
    assert "'mps' is not available" in driver.last("b").reason


async def test_a_diverging_loss_ends_as_diverged_not_as_done(driver: Driver) -> None:
    run = driver.start(preset("a", steps=500, optimizer="sgd", lr=1e9))
    await driver.until(lambda: driver.state("a") == "diverged")
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status == "diverged"
        assert reader.last_step < 499
        assert "nonfinite" in [event.kind for event in reader.events()]


def test_a_line_that_is_no_command_is_refused_and_the_next_one_is_read() -> None:
    lines = [b"hello\n", protocol.encode(protocol.Order([])), b'{"do": "fly"}\n']
    command = [sys.executable, "-m", "gradtui.engine", "1"]
    done = subprocess.run(command, input=b"".join(lines), stdout=subprocess.PIPE, timeout=100, check=True)
    events = [protocol.decode_event(line) for line in done.stdout.splitlines()]
    assert [type(event) for event in events] == [protocol.Hello, protocol.Refused, protocol.Refused]


async def test_when_its_input_ends_nothing_is_left_after_two_seconds(driver: Driver) -> None:
    run = driver.start(preset("a", steps=100_000))
    await driver.until(lambda: run.exists() and last_step(run) >= 3)
    pid = driver.client.pid or 0
    pids = [pid, *family(pid)]
    assert len(pids) >= 3
    began = time.monotonic()
    await driver.client.stop()
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() - began < 2
        await asyncio.sleep(0.02)
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status == "stopped"
        assert len(reader.losses()) == reader.last_step + 1


async def test_a_killed_supervisor_is_noticed_and_takes_its_lanes_with_it(driver: Driver) -> None:
    run = driver.start(preset("a", steps=100_000))
    await driver.until(lambda: run.exists() and last_step(run) >= 3)
    pid = driver.client.pid or 0
    pids = family(pid)
    os.kill(pid, signal.SIGKILL)
    await driver.until(lambda: driver.ended)
    assert "signal 9" in driver.ended[0]
    assert "engine.log" in driver.ended[0]
    await driver.until(lambda: all(is_gone(pid) for pid in pids), timeout=2)
    await driver.client.start()
    again = driver.start(preset("b", steps=3))
    await driver.until(lambda: again.exists() and last_step(again) == 2)


@pytest.mark.parametrize(
    ("priority", "runnable", "slots", "chosen"),
    [
        (["b"], ["a", "b", "c"], 2, {"b", "a"}),
        (["c", "b"], ["a", "b", "c"], 2, {"c", "b"}),
        (["x", "a"], ["a", "b"], 1, {"a"}),
        ([], ["a", "b"], 5, {"a", "b"}),
        (["a"], [], 3, set()),
    ],
)
def test_cores_go_to_the_lanes_of_the_highest_priority(
    priority: list[str], runnable: list[str], slots: int, chosen: set[str]
) -> None:
    assert share_cores(priority, runnable, slots) == chosen


@pytest.mark.parametrize(
    "command",
    [
        protocol.Start("a", preset("a"), 3, "cpu", "/tmp/x"),
        protocol.Pause("a"),
        protocol.Resume("a"),
        protocol.Step("a"),
        protocol.More("a", 4),
        protocol.SetLr("a", 0.5),
        protocol.Stop("a"),
        protocol.Order(["a", "b"]),
    ],
)
def test_a_command_is_the_same_after_encoding_and_decoding(command: protocol.Command) -> None:
    line = protocol.encode(command)
    assert line.count(b"\n") == 1
    assert protocol.decode_command(line) == command


async def test_quitting_while_torch_is_being_loaded_takes_no_longer(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.client.start()
    driver.start(preset("a"))
    await asyncio.sleep(0.4)
    pid = driver.client.pid or 0
    pids = [pid, *family(pid)]
    began = time.monotonic()
    await driver.client.stop()
    assert time.monotonic() - began < 2.5
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() - began < 3
        await asyncio.sleep(0.02)


def test_commands_to_a_lane_in_a_long_step_do_not_block_the_supervisor() -> None:
    ours, theirs = multiprocessing.Pipe()
    start = protocol.Start("a", preset("a"), 0, "cpu", "/nowhere")
    lane = LaneProcess(start, multiprocessing.Process(), ours)
    for _ in range(20_000):
        lane.command(LaneCommand("step"))
    lane.command(LaneCommand("stop"))
    assert len(lane.outbox) <= MOST_WAITING + 1
    received = []
    while lane.outbox or theirs.poll():
        while theirs.poll():
            received.append(theirs.recv().what)
        lane.send()
    assert received[-1] == "stop"


class FakeTrainer:
    """A trainer whose run file can be written only while `full` is False."""

    def __init__(self, steps: int) -> None:
        self.preset = preset("a", steps=steps)
        self.step_count, self.full, self.diverged = 0, False, False

    def _write(self) -> None:
        if self.full:
            raise RunError("x.gradtui cannot be written: database or disk is full")

    def step(self) -> None:
        self.step_count += 1
        self._write()

    def rest(self, status: str, reason: str = "") -> None:
        self._write()

    def set_facts(self, **facts: object) -> None:
        self._write()

    def close(self, status: str, reason: str = "") -> None:
        self.full = False


def test_a_full_disk_pauses_a_lane_until_it_is_told_to_try_again() -> None:
    ours, theirs = multiprocessing.Pipe()
    trainer = FakeTrainer(steps=3)
    thread = threading.Thread(target=LaneLoop(theirs, trainer).run, daemon=True)  # type: ignore[arg-type]
    thread.start()

    def next_status() -> LaneStatus:
        assert ours.poll(5)
        status: LaneStatus = ours.recv()
        return status

    assert next_status() == LaneStatus("waiting")
    ours.send(LaneCommand("step"))
    assert next_status() == LaneStatus("paused")
    trainer.full = True
    ours.send(LaneCommand("step"))
    assert "disk is full" in next_status().reason
    ours.send(LaneCommand("resume"))  # still full: reported again, once
    assert "disk is full" in next_status().reason
    assert not ours.poll(0.6)
    trainer.full = False
    ours.send(LaneCommand("resume"))
    ours.send(LaneCommand("go"))
    states = [next_status().state]
    while states[-1] != "done":
        states.append(next_status().state)
    # And where the disk is full at the last step: one report, no storm, and more steps do not kill it.
    trainer.full = True
    ours.send(LaneCommand("more", 1))
    assert "disk is full" in next_status().reason
    assert not ours.poll(0.6)
    trainer.full = False
    ours.send(LaneCommand("resume"))
    while next_status().state != "done":
        pass
    assert trainer.step_count == 4
    ours.send(LaneCommand("stop"))
    thread.join(5)
    assert not thread.is_alive()
