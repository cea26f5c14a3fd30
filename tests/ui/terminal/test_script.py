"""A script of the user's own beside the screen: it is stopped or left running as the user says."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ui.terminal.conftest import PYTHON, Tmux, wait

SCRIPT = """
import sys, time
print("running", flush=True)
print("heard", input(), flush=True)
for number in range(1_000_000):
    print(number, flush=True)
    time.sleep(0.05)
"""
LAUNCH = """
import sys
from pathlib import Path
from gradtui.script.process import Script
from gradtui.ui.launch import launch_script
script, directory = sys.argv[1], Path(sys.argv[2])
sys.exit(launch_script(Script([script], run=directory / "x.gradtui", log=directory / "x.log"), language="en"))
"""


@pytest.fixture
def beside(tmux: Tmux, tmp_path: Path) -> Tmux:
    """A script that has been sent a line, and goes on for long."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "launch.py").write_text(LAUNCH)
    tmux.start(f"{PYTHON} {tmp_path}/launch.py {tmp_path}/script.py {tmp_path}")
    tmux.until("running")
    tmux.keys("i")
    tmux.until("a line for the script")
    tmux.keys("you", "Enter")
    tmux.until("heard you")
    return tmux


def until_only_the_script_runs(tmux: Tmux, log: Path) -> None:
    """Wait until the screen is gone; the script is still there, and goes on writing."""
    wait(lambda: not any("launch.py" in command for command in tmux.running()), tmux.running)
    assert any("script.py" in command for command in tmux.running())
    before = log.stat().st_size
    wait(lambda: log.stat().st_size > before)


def test_a_script_is_stopped_when_that_is_the_answer(beside: Tmux) -> None:
    beside.keys("q")
    beside.until("still running")
    beside.keys("s")
    beside.until_whole(128 + signal.SIGTERM)


def test_a_script_left_running_goes_on_and_is_named(beside: Tmux, tmp_path: Path) -> None:
    beside.keys("C-c")
    beside.until("still running")
    beside.keys("l")
    beside.until("ended with 0")
    assert "still running: pid" in beside.screen()
    assert f"gradtui watch {tmp_path}/x.gradtui" in beside.screen().replace("\n", "")
    until_only_the_script_runs(beside, tmp_path / "x.log")


def test_a_lost_terminal_leaves_the_script_running(beside: Tmux, tmp_path: Path) -> None:
    beside.tmux("kill-server")
    until_only_the_script_runs(beside, tmp_path / "x.log")


def test_a_screen_that_is_terminated_leaves_the_script_running(beside: Tmux, tmp_path: Path) -> None:
    os.kill(beside.pid("launch.py"), signal.SIGTERM)
    beside.until(f"ended with {128 + signal.SIGTERM}")
    assert "still running: pid" in beside.screen()
    until_only_the_script_runs(beside, tmp_path / "x.log")
