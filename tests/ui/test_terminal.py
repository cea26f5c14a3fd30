"""The life cycle in a real terminal: however gradtui ends, the terminal is whole and nothing is left running."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradtui.bench.terminal import Terminal
from gradtui.runs.reader import RunReader
from gradtui.ui import terminal_guard as lifeline_module

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to see processes"),
]

GRADTUI = Path(sys.executable).with_name("gradtui")


def wait(true: Callable[[], object], timeout: float = 60, what: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def processes(marker: str) -> dict[int, str]:
    """Living processes that carry `marker` in their environment, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if marker.encode() not in (entry / "environ").read_bytes():
                continue
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):
            continue
        if state not in "ZX":
            found[int(entry.name)] = command
    return found


class Tmux:
    """gradtui in a window of a tmux server of its own; the shell stays, so that its end can be seen."""

    def __init__(self, directory: Path, width: int = 140, height: int = 44) -> None:
        self.name, self.width, self.height = f"gradtui-{uuid.uuid4().hex[:8]}", width, height
        self.data = directory / "data"
        self.marker = f"GRADTUI_TEST={self.name}"

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self.name, *arguments], capture_output=True, text=True)
        return done.stdout

    def start(self, command: str = f"{GRADTUI}", **environment: str) -> None:
        settings = {
            "TERM": "tmux-256color",
            "GRADTUI_DATA_DIR": str(self.data),
            "LC_ALL": "C.UTF-8",
            **environment,
        }
        words = " ".join(f"{name}='{value}'" for name, value in settings.items())
        script = f"env {self.marker} {words} {command}; echo ended with $?; exec cat"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(self.width), "-y", str(self.height), script)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def until(self, text: str, timeout: float = 60) -> None:
        wait(lambda: text in self.screen(), timeout, lambda: f"no {text!r} in\n{self.screen()}")

    def flags(self) -> str:
        return self.tmux("display", "-p", "#{alternate_on}#{cursor_flag}#{mouse_any_flag}").strip()

    def pid(self, part: str) -> int:
        """The oldest process whose command line holds `part`."""
        return min(pid for pid, command in processes(self.marker).items() if part in command)

    def ui(self) -> int:
        return self.pid("bin/gradtui")

    def assert_whole(self, code: int) -> None:
        self.until(f"ended with {code}", 20)
        assert self.flags() == "010"  # no alternate screen, a cursor, no mouse mode
        wait(self.is_over, 2, lambda: str(processes(self.marker)))

    def is_over(self) -> bool:
        return not any("gradtui" in command or "forkserver" in command for command in self.running())

    def running(self) -> list[str]:
        return [command for command in processes(self.marker).values() if "echo ended" not in command]

    def runs(self) -> list[Path]:
        return sorted((self.data / "runs").glob("*.gradtui"))

    def until_data(self) -> None:
        """Both first lanes have recorded some steps, and the screen shows them."""
        wait(lambda: len(self.runs()) >= 2 and all(last_step(run) >= 3 for run in self.runs()[:2]))
        self.until("by layer")
        self.until("ayer 0 gets", 20)


def last_step(run: Path) -> int:
    reader = RunReader(run)
    try:
        return reader.last_step
    finally:
        reader.close()


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    one = Tmux(tmp_path)
    yield one
    one.tmux("kill-server")
    for pid in processes(one.marker):
        os.kill(pid, signal.SIGKILL)


def assert_recorded(tmux: Tmux) -> None:
    """Every run file is complete: no hole before its last step."""
    for run in tmux.runs():
        reader = RunReader(run)
        assert len(reader.losses()) == reader.last_step + 1
        reader.close()


@pytest.mark.parametrize("key", ["q", "C-c"])
def test_quitting_leaves_a_whole_terminal_and_no_process(tmux: Tmux, key: str) -> None:
    tmux.start()
    tmux.until_data()
    assert len(tmux.running()) >= 4  # screen, supervisor, forkserver, lanes
    tmux.keys(key)
    tmux.assert_whole(0)
    assert_recorded(tmux)
    statuses = set()
    for run in tmux.runs():
        reader = RunReader(run)
        statuses.add(reader.status)
        reader.close()
    assert statuses == {"stopped"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(tmux: Tmux, number: signal.Signals) -> None:
    tmux.start()
    tmux.until_data()
    os.kill(tmux.ui(), number)
    tmux.assert_whole(128 + number)
    assert_recorded(tmux)


def test_closing_the_terminal_leaves_no_process_and_whole_files(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    tmux.tmux("kill-server")
    wait(tmux.is_over, 4, lambda: str(processes(tmux.marker)))
    assert_recorded(tmux)


def test_a_killed_screen_takes_its_engine_with_it(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    os.kill(tmux.ui(), signal.SIGKILL)
    wait(tmux.is_over, 2, lambda: str(processes(tmux.marker)))
    assert_recorded(tmux)


def test_a_killed_lane_is_said_and_r_restarts_it(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    run = next(run for run in tmux.runs() if run.name.startswith("post-ln-s"))
    reader = RunReader(run)
    os.kill(int(reader.facts["pid"]), signal.SIGKILL)
    tmux.until("killed by signal 9")
    tmux.until("by layer")
    before = len(tmux.runs())
    tmux.keys("r")
    wait(lambda: len(tmux.runs()) == before + 1 and last_step(tmux.runs()[-1]) >= 1)
    reader.close()
    wait(lambda: "killed by signal 9" not in tmux.screen(), 20, tmux.screen)


def test_a_killed_supervisor_is_said_and_r_starts_another(tmux: Tmux) -> None:
    tmux.start()
    tmux.until_data()
    os.kill(tmux.pid("-m gradtui.engine"), signal.SIGKILL)
    tmux.until("The engine has ended")
    before = len(tmux.runs())
    tmux.keys("r")
    wait(lambda: len(tmux.runs()) > before and max(map(last_step, tmux.runs()[-1:])) >= 0)
    tmux.keys("q")
    tmux.assert_whole(0)


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
    tmux.assert_whole(0)


def test_without_colour_marks_and_shades_carry_the_meaning(tmux: Tmux) -> None:
    tmux.start(NO_COLOR="1")
    tmux.until_data()
    tmux.until("↓")
    tmux.until("·░▒▓█")
    # Greys only: red, green and blue of every colour are the same.
    styled = tmux.tmux("capture-pane", "-e", "-p")
    for red, green, blue in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", styled):
        assert red == green == blue


def test_sixteen_colours_are_enough(tmux: Tmux) -> None:
    tmux.start(TERM="xterm")
    tmux.until_data()
    tmux.until("·░▒▓█")
    tmux.keys("q")
    tmux.assert_whole(0)


@pytest.mark.slow
def test_two_labs_at_once_do_not_disturb_each_other(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start()
    tmux.until_data()
    other = Tmux(tmp_path)
    other.start()
    try:
        wait(lambda: len(other.runs()) >= 4)
        other.until("by layer")
        other.keys("q")
        other.assert_whole(0)
    finally:
        other.tmux("kill-server")
    tmux.until("by layer")
    tmux.keys("q")
    tmux.assert_whole(0)
    assert_recorded(tmux)


def test_a_data_directory_that_cannot_be_written_is_said_and_replaced(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    tmux.start()
    tmux.until("cannot be written")
    tmux.until("ayer 0 gets")
    tmux.keys("q")
    tmux.assert_whole(0)


def test_a_crash_is_one_sentence_with_the_path_of_the_log(tmux: Tmux) -> None:
    breaking = (
        'import sys; sys.argv = ["gradtui"]; '
        "from gradtui.ui import painting; "
        "painting.heat_painter = lambda *a, **k: 1 / 0; "
        "from gradtui.cli.main import main; main()"
    )
    tmux.start(f"{sys.executable} -c '{breaking}'")
    tmux.until("gradtui has failed: ZeroDivisionError")
    tmux.assert_whole(1)
    assert "gradtui.log" in tmux.screen().replace("\n", "")
    assert "Traceback" not in tmux.screen()
    assert "ZeroDivisionError" in (tmux.data / "logs" / "gradtui.log").read_text()


def test_watch_follows_a_run_that_another_process_records(tmux: Tmux, tmp_path: Path) -> None:
    out = tmp_path / "followed.gradtui"
    process = subprocess.Popen(
        [str(GRADTUI), "run", "pre-ln", "--out", str(out), "--steps", "100000"], stderr=subprocess.DEVNULL
    )
    try:
        wait(lambda: out.exists() and last_step(out) >= 2)
        tmux.start(f"{GRADTUI} watch {out}")
        tmux.until("» live")
        here = last_step(out)
        wait(lambda: f"step {here + 5}" in tmux.screen() or last_step(out) > here + 20)
        process.kill()
        process.wait()
        tmux.until("died", 20)
        tmux.keys("q")
        tmux.assert_whole(0)
    finally:
        process.kill()
        process.wait()


SCRIPT = """
import sys, time
print("running", flush=True)
print("heard", input(), flush=True)
for number in range(10_000):
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
    """A script of somebody's own that has been told something and goes on for long."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "launch.py").write_text(LAUNCH)
    tmux.start(f"{sys.executable} {tmp_path}/launch.py {tmp_path}/script.py {tmp_path}")
    tmux.until("running")
    tmux.keys("i")
    tmux.until("a line for the script")
    tmux.keys("you", "Enter")
    tmux.until("heard you")
    return tmux


def script_runs(tmux: Tmux) -> bool:
    return any("script.py" in command and "launch.py" not in command for command in tmux.running())


def goes_on(log: Path) -> bool:
    before = log.stat().st_size
    wait(lambda: log.stat().st_size > before, 10)
    return True


def test_a_script_is_stopped_when_that_is_the_answer(beside: Tmux) -> None:
    beside.keys("q")
    beside.until("still running")
    beside.keys("s")
    beside.until(f"ended with {128 + signal.SIGTERM}", 20)
    assert beside.flags() == "010"
    assert not script_runs(beside)


def test_a_script_left_running_goes_on_and_is_named(beside: Tmux, tmp_path: Path) -> None:
    beside.keys("C-c")
    beside.until("still running")
    beside.keys("l")
    beside.until("ended with 0", 20)
    assert beside.flags() == "010"
    assert "still running: pid" in beside.screen()
    assert f"gradtui watch {tmp_path}/x.gradtui" in beside.screen().replace("\n", "")
    assert script_runs(beside)
    assert goes_on(tmp_path / "x.log")


def test_a_lost_terminal_leaves_the_script_running(beside: Tmux, tmp_path: Path) -> None:
    beside.tmux("kill-server")
    wait(lambda: not any("launch.py" in command for command in beside.running()), 10)
    assert script_runs(beside)
    assert goes_on(tmp_path / "x.log")


def test_a_screen_that_is_terminated_leaves_the_script_running(beside: Tmux, tmp_path: Path) -> None:
    os.kill(beside.pid("launch.py"), signal.SIGTERM)
    beside.until(f"ended with {128 + signal.SIGTERM}", 20)
    assert "still running: pid" in beside.screen()
    assert script_runs(beside)
    assert goes_on(tmp_path / "x.log")


@pytest.mark.slow
def test_a_terminal_that_takes_no_more_output_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    marker = f"GRADTUI_TEST=stuck-{uuid.uuid4().hex[:8]}"
    name, _, value = marker.partition("=")
    environment = {"GRADTUI_DATA_DIR": str(tmp_path / "data"), "LC_ALL": "C.UTF-8", name: value}
    terminal = Terminal([str(GRADTUI)], environment)
    terminal.wait_for("ayer 0 gets")
    time.sleep(4)  # nobody reads: the terminal is full, and so is Textual's queue
    os.kill(terminal.pid, signal.SIGTERM)
    ended: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(terminal.pid, os.WNOHANG)
        ended.extend([os.waitstatus_to_exitcode(status)] if pid else [])
        return bool(pid)

    wait(has_ended, 5)
    assert ended == [128 + signal.SIGTERM]
    wait(lambda: not processes(marker), 3, lambda: str(processes(marker)))
    for run in (tmp_path / "data" / "runs").glob("*.gradtui"):
        reader = RunReader(run)
        assert len(reader.losses()) == reader.last_step + 1
        reader.close()


def test_a_terminal_that_hangs_up_without_a_signal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(lifeline_module, "_terminal_attributes", lambda: [0])
    lifeline = lifeline_module.Lifeline()
    monkeypatch.setattr(lifeline_module.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(lifeline_module.os, "_exit", lambda code: left.append(-code))
    lifeline.watch(left.append)
    time.sleep(0.7)
    assert left == []
    monkeypatch.setattr(lifeline_module, "_terminal_attributes", lambda: None)
    monkeypatch.setattr(lifeline_module.Lifeline, "_restore_by_force", lambda self: None)
    wait(lambda: left == [129, -129], 5, lambda: str(left))


@pytest.mark.parametrize("after", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_signal_during_start_up_ends_it_without_a_crash(tmp_path: Path, after: float) -> None:
    marker = f"GRADTUI_TEST=early-{uuid.uuid4().hex[:8]}"
    name, _, value = marker.partition("=")
    terminal = Terminal([str(GRADTUI)], {"GRADTUI_DATA_DIR": str(tmp_path / "data"), name: value})
    deadline = time.monotonic() + after
    while time.monotonic() < deadline:
        terminal.pump(0.02)
    os.kill(terminal.pid, signal.SIGTERM)
    status = terminal.close()
    code = os.waitstatus_to_exitcode(status)
    # Before Python has got as far as our first line, the default action is all there is.
    assert code == 128 + signal.SIGTERM or (after < 0.3 and code == -signal.SIGTERM)
    assert b"has failed" not in terminal.seen
    wait(lambda: not processes(marker), 4, lambda: str(processes(marker)))
