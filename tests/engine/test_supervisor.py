"""The supervisor: which lanes get a core, and that nothing is left of an engine that ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from engine.conftest import FOREVER, Driver, Engine, make_preset, until

from gradtui.engine import protocol
from gradtui.engine.protocol import LaneCommand
from gradtui.engine.supervisor import MOST_WAITING, LaneProcess, share_cores
from gradtui.runs.reader import RunReader

needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to see processes")


def is_gone(pid: int) -> bool:
    """No such process, or one that has ended and only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def family(pid: int) -> list[int]:
    """Every process below `pid`."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            children += [int(child), *family(int(child))]
    return children


@needs_proc
@pytest.mark.asyncio(loop_scope="module")
async def test_when_its_input_ends_nothing_is_left_and_the_runs_are_complete(
    own_engine: Engine, tmp_path: Path
) -> None:
    await own_engine.start()
    run = await Driver(own_engine, tmp_path).until_training(make_preset("a", FOREVER))
    pids = [own_engine.pid, *family(own_engine.pid)]
    assert len(pids) >= 3
    await own_engine.client.stop()
    await until(lambda: all(is_gone(pid) for pid in pids))
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status == "stopped"
        assert len(reader.losses()) == reader.last_step + 1


@needs_proc
@pytest.mark.asyncio(loop_scope="module")
async def test_a_killed_supervisor_is_noticed_and_takes_its_lanes_with_it(
    own_engine: Engine, tmp_path: Path
) -> None:
    await own_engine.start()
    await Driver(own_engine, tmp_path).until_training(make_preset("a", FOREVER))
    pids = family(own_engine.pid)
    os.kill(own_engine.pid, signal.SIGKILL)
    await until(lambda: own_engine.ended)
    assert "signal 9" in own_engine.ended[0]
    assert "engine.log" in own_engine.ended[0]
    await until(lambda: all(is_gone(pid) for pid in pids))
    await own_engine.start()  # another one can be started in its place


@needs_proc
@pytest.mark.asyncio(loop_scope="module")
async def test_quitting_does_not_wait_for_torch_to_be_loaded(
    own_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'loading')!r}, 'w')\nimport time\ntime.sleep(10**6)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    await own_engine.start()
    Driver(own_engine, tmp_path).start(make_preset("a"))
    await until((tmp_path / "loading").exists)
    pids = [own_engine.pid, *family(own_engine.pid)]
    assert len(pids) >= 2
    await own_engine.client.stop()
    await until(lambda: all(is_gone(pid) for pid in pids))


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


def test_commands_to_a_lane_in_a_long_step_do_not_block_the_supervisor() -> None:
    ours, theirs = multiprocessing.Pipe()
    start = protocol.Start("a", make_preset("a"), 0, "cpu", "/nowhere")
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
