"""The lab in a terminal: however it ends, the terminal is whole, the runs are complete, nothing is left running.

Each test ends its lab in another way: a start takes seconds, so each shows how the lab looks in a terminal, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from ui.terminal.conftest import GRADTUI, PYTHON, Tmux, assert_complete, last_step, status, wait

from gradtui.runs.reader import RunReader

BREAKING = """
import sys
from gradtui.ui.screens.lab import LabScreen
LabScreen.on_resize = lambda self, event: 1 / 0
sys.argv = ["gradtui"]
from gradtui.cli.main import main
main()
"""


def test_lanes_and_engine_that_are_killed_are_said_and_started_again_and_q_quits(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    assert len(tmux.running()) >= 4  # screen, supervisor, forkserver, lanes
    run = next(run for run in tmux.runs() if run.name.startswith("post-ln-s"))
    with contextlib.closing(RunReader(run)) as reader:
        os.kill(int(reader.facts["pid"]), signal.SIGKILL)
    tmux.until("killed by signal 9")
    tmux.until("by layer")
    before = len(tmux.runs())
    tmux.keys("r")
    wait(lambda: len(tmux.runs()) > before and last_step(tmux.runs()[-1]) >= 1)
    wait(lambda: "killed by signal 9" not in tmux.screen(), tmux.screen)
    os.kill(tmux.pid("-m gradtui.engine"), signal.SIGKILL)
    tmux.until("The engine has ended")
    before = len(tmux.runs())
    tmux.keys("r")
    wait(lambda: len(tmux.runs()) > before and last_step(tmux.runs()[-1]) >= 0)
    tmux.keys("q")
    tmux.until_whole(0)
    assert_complete(tmux.runs())


def test_without_colour_marks_and_shades_carry_the_meaning_and_ctrl_c_quits(tmux: Tmux) -> None:
    tmux.start(NO_COLOR="1")
    tmux.until_data()
    tmux.until("↓")
    tmux.until("·░▒▓█")
    # Greys only: red, green and blue of every colour are the same.
    styled = tmux.tmux("capture-pane", "-e", "-p")
    for red, green, blue in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", styled):
        assert red == green == blue
    tmux.keys("C-c")
    tmux.until_whole(0)
    assert_complete(tmux.runs())
    assert {status(run) for run in tmux.runs()} == {"stopped"}


def test_sixteen_colours_are_enough_and_sigterm_ends_it_in_good_order(tmux: Tmux) -> None:
    tmux.start(TERM="xterm")
    tmux.until_data()
    tmux.until("·░▒▓█")
    os.kill(tmux.pid("bin/gradtui"), signal.SIGTERM)
    tmux.until_whole(128 + signal.SIGTERM)
    assert_complete(tmux.runs())


def test_a_data_directory_that_cannot_be_written_is_replaced_and_sighup_ends_it_in_good_order(
    tmux: Tmux, scratch: Path
) -> None:
    tmux.data.write_text("a file, not a directory")
    tmux.start()
    tmux.until("cannot be written")
    tmux.until("ayer 0 gets")
    os.kill(tmux.pid("bin/gradtui"), signal.SIGHUP)
    tmux.until_whole(128 + signal.SIGHUP)
    assert_complete(list(scratch.glob("gradtui-*/runs/*.gradtui")))


def test_closing_the_terminal_leaves_no_process_and_complete_runs(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    tmux.tmux("kill-server")
    tmux.until_over()
    assert_complete(tmux.runs())


def test_a_killed_screen_takes_its_engine_with_it(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    os.kill(tmux.pid("bin/gradtui"), signal.SIGKILL)
    tmux.until_over()
    assert_complete(tmux.runs())


def test_a_crash_is_one_sentence_with_the_path_of_the_log(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(BREAKING)
    tmux.start(f"{PYTHON} {tmp_path}/breaking.py")
    tmux.until("gradtui has failed: ZeroDivisionError")
    tmux.until_whole(1)
    assert "gradtui.log" in tmux.screen().replace("\n", "")
    assert "Traceback" not in tmux.screen()
    assert "ZeroDivisionError" in (tmux.data / "logs" / "gradtui.log").read_text()


def test_watch_follows_a_run_that_another_process_records(tmux: Tmux, tmp_path: Path) -> None:
    out = tmp_path / "followed.gradtui"
    arguments = ("run", "pre-ln", "--out", str(out), "--steps", "1000000")
    process = warm.WarmProcess(warm.command, *arguments, directory=tmp_path)
    try:
        wait(lambda: out.exists() and last_step(out) >= 2)
        tmux.start(f"{GRADTUI} watch {out}")
        tmux.until("» live")
        here = last_step(out)

        def shown() -> list[int]:
            return [int(step) for step in re.findall(r"step (\d+)", tmux.screen())]

        wait(lambda: any(step > here + 5 for step in shown()), tmux.screen)
    finally:
        process.kill()
    tmux.until("died")
    tmux.keys("q")
    tmux.until_whole(0)


@pytest.mark.slow
def test_a_resize_storm_while_streaming_ends_where_it_began(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    for width, height in [(80, 24), (1, 1), (200, 60), (7, 3), (100, 30), (50, 14), (49, 14), (2, 50), (140, 44)]:
        tmux.tmux("resize-window", "-x", str(width), "-y", str(height))
        time.sleep(0.25)
    tmux.until("by layer")
    tmux.until("presets")
    tmux.keys("q")
    tmux.until_whole(0)


@pytest.mark.slow
def test_two_labs_at_once_do_not_disturb_each_other(make_tmux: Callable[[], Tmux]) -> None:
    first, second = make_tmux(), make_tmux()
    first.start()
    first.until_data()
    second.start()
    wait(lambda: len(second.runs()) >= 4)
    second.until("by layer")
    second.keys("q")
    second.until_whole(0)
    first.until("by layer")
    first.keys("q")
    first.until_whole(0)
    assert_complete(first.runs())
