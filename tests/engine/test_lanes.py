"""Lanes of a running engine: they train, pause, go on, end and fail, and say so."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from engine.conftest import FOREVER, Driver, last_step, make_preset

from gradtui.engine import protocol
from gradtui.runs.reader import RunReader

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_preset_trains_to_its_last_step_and_rests(driver: Driver) -> None:
    run = driver.start(make_preset("a"))
    await driver.until(lambda: driver.state("a") == "done")
    assert driver.reports("a")[0].state == "starting"
    with contextlib.closing(RunReader(run)) as reader:
        assert (reader.last_step, reader.status) == (29, "done")
        assert reader.facts["preset"]["model"]["layers"] == 2
    driver.send(protocol.More("a", 5))
    await driver.until(lambda: driver.state("a") == "done" and last_step(run) == 34)


async def test_a_paused_lane_takes_single_steps_until_it_may_go_on(driver: Driver) -> None:
    run = await driver.until_training(make_preset("a", FOREVER))
    driver.send(protocol.Pause("a"))
    await driver.until(lambda: driver.state("a") == "paused")
    here = last_step(run)
    driver.start(make_preset("b"))
    await driver.until(lambda: driver.state("b") == "done")
    assert last_step(run) == here
    driver.send(protocol.Step("a"))
    await driver.until(lambda: last_step(run) == here + 1)
    driver.start(make_preset("c"))
    await driver.until(lambda: driver.state("c") == "done")
    assert last_step(run) == here + 1
    driver.send(protocol.Resume("a"))
    await driver.until(lambda: last_step(run) > here + 5)


async def test_another_seed_gives_another_run_and_the_same_seed_the_same_one(driver: Driver) -> None:
    losses = []
    for seed in (0, 0, 1):
        run = driver.start(make_preset("a", steps=5), seed)
        await driver.until(lambda run=run: driver.state("a") == "done" and driver.last("a").run == str(run))
        with contextlib.closing(RunReader(run)) as reader:
            losses.append(reader.losses().tolist())
    assert losses[0] == losses[1] != losses[2]


async def test_more_lanes_than_slots_wait_and_the_order_decides(driver: Driver) -> None:
    runs = {name: driver.start(make_preset(name, FOREVER)) for name in "abcd"}
    await driver.until(lambda: driver.state("a") == driver.state("b") == "running")
    await driver.until(lambda: driver.state("c") == driver.state("d") == "waiting")
    driver.send(protocol.Order(["d", "a"]))
    await driver.until(lambda: driver.state("d") == "running" and driver.state("b") == "waiting")
    still = last_step(runs["b"])
    await driver.until(lambda: last_step(runs["d"]) >= 3)
    assert last_step(runs["b"]) == still
    assert last_step(runs["c"]) == -1


async def test_a_killed_lane_is_reported_with_its_reason_and_the_others_go_on(driver: Driver) -> None:
    runs = {name: await driver.until_training(make_preset(name, FOREVER)) for name in "ab"}
    os.kill(driver.last("a").pid, signal.SIGKILL)
    await driver.until(lambda: driver.state("a") == "died")
    assert "signal 9 (SIGKILL" in driver.last("a").reason
    with contextlib.closing(RunReader(runs["a"])) as reader:
        assert reader.last_step >= 3
        assert reader.status == "died"
        assert "signal 9" in reader.facts["reason"]
    here = last_step(runs["b"])
    await driver.until(lambda: last_step(runs["b"]) > here + 3)
    again = driver.start(make_preset("a", steps=5))
    await driver.until(lambda: driver.state("a") == "done" and last_step(again) == 4)


async def test_a_lane_that_is_ended_politely_loses_no_step(driver: Driver) -> None:
    run = await driver.until_training(make_preset("a", FOREVER))
    os.kill(driver.last("a").pid, signal.SIGTERM)
    await driver.until(lambda: driver.state("a") in ("died", "stopped"))
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status in ("stopped", "died")
        assert len(reader.losses()) == reader.last_step + 1


async def test_a_preset_that_cannot_begin_says_why(driver: Driver, tmp_path: Path) -> None:
    run = tmp_path / "there.gradtui"
    run.write_text("precious")
    driver.send(protocol.Start("a", make_preset("a"), 0, "cpu", str(run)))
    await driver.until(lambda: driver.state("a") == "died")
    assert "already exists" in driver.last("a").reason
    driver.send(protocol.Start("b", make_preset("b"), 0, "mps", str(tmp_path / "b.gradtui")))
    await driver.until(lambda: driver.state("b") == "died")
    assert "'mps' is not available" in driver.last("b").reason


async def test_a_diverging_loss_ends_as_diverged_not_as_done(driver: Driver) -> None:
    run = driver.start(make_preset("a", steps=500, optimizer="sgd", lr=1e9))
    await driver.until(lambda: driver.state("a") == "diverged")
    with contextlib.closing(RunReader(run)) as reader:
        assert reader.status == "diverged"
        assert reader.last_step < 499
        assert "nonfinite" in [event.kind for event in reader.events()]


async def test_a_line_that_is_no_command_is_refused_and_the_engine_lives(driver: Driver) -> None:
    class Fly(protocol.Command, frozen=True):
        """Unknown to the engine."""

    driver.send(msgspec.Raw(b"hello"))  # type: ignore[arg-type]
    driver.send(Fly())
    await driver.until(lambda: sum(isinstance(event, protocol.Refused) for event in driver.events) == 2)
    driver.start(make_preset("a", steps=3))
    await driver.until(lambda: driver.state("a") == "done")


@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits can be set on Linux only")
async def test_a_lane_whose_file_cannot_grow_pauses_until_it_is_told_to_try_again(driver: Driver) -> None:
    def limit(size: int) -> None:
        resource.prlimit(driver.last("a").pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def complaints() -> int:
        return sum(
            report.state == "paused" and "cannot be written" in report.reason for report in driver.reports("a")
        )

    run = driver.start(make_preset("a", steps=3))
    await driver.until(lambda: driver.state("a") == "done")
    limit(1)
    driver.send(protocol.More("a", 2))
    await driver.until(lambda: complaints() == 1)
    driver.send(protocol.Resume("a"))  # still no room: said once more
    await driver.until(lambda: complaints() == 2)
    driver.start(make_preset("b"))
    await driver.until(lambda: driver.state("b") == "done")
    assert complaints() == 2
    limit(resource.RLIM_INFINITY)
    driver.send(protocol.Resume("a"))
    await driver.until(lambda: driver.state("a") == "done" and last_step(run) == 4)
    with contextlib.closing(RunReader(run)) as reader:
        assert len(reader.losses()) == 5
