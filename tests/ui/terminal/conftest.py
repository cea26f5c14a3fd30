"""gradtui in a real terminal: a window of a tmux server of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradtui.runs.reader import RunReader

LIMIT_SECONDS = 120
PYTHON = shlex.quote(sys.executable)
GRADTUI = shlex.quote(str(Path(sys.executable).with_name("gradtui")))


def wait(true: Callable[[], object], what: Callable[[], object] = str) -> None:
    """Wait until something is so; says `what()` where it never is."""
    deadline = time.monotonic() + LIMIT_SECONDS
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


def last_step(run: Path) -> int:
    """The newest step in a run file."""
    with contextlib.closing(RunReader(run)) as reader:
        return reader.last_step


def status(run: Path) -> str:
    """What a run file says of how its run stands."""
    with contextlib.closing(RunReader(run)) as reader:
        return reader.status


class Tmux:
    """Runs a command in a window of `width` × `height` cells; what it prints stays on the screen after its end.

    The command's processes are told by a variable in their environment. Its data directory is `data`; `scratch` is
    for the sockets of tmux and of multiprocessing, which a process that is killed leaves behind.
    """

    def __init__(self, data: Path, scratch: Path, width: int = 140, height: int = 44) -> None:
        self.name, self.width, self.height = f"gradtui-{uuid.uuid4().hex[:8]}", width, height
        self.data, self._scratch = data, scratch
        self.marker = f"GRADTUI_TEST={self.name}"

    def tmux(self, *arguments: str) -> str:
        """A command of tmux; returns what it prints."""
        environment = {**os.environ, "TMUX_TMPDIR": str(self._scratch)}
        done = subprocess.run(
            ["tmux", "-L", self.name, *arguments], capture_output=True, text=True, env=environment
        )
        return done.stdout

    def start(self, command: str = GRADTUI, **variables: str) -> None:
        """Run a command of the shell, with `variables` in its environment."""
        settings = {
            "TERM": "tmux-256color",
            "GRADTUI_DATA_DIR": str(self.data),
            "TMPDIR": str(self._scratch),
            "LC_ALL": "C.UTF-8",
            **variables,
        }
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
        script = f"env {self.marker} {words} {command}; echo ended with $?; exec cat"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(self.width), "-y", str(self.height), script)

    def screen(self) -> str:
        """What the screen shows."""
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        """Press keys."""
        self.tmux("send-keys", *keys)

    def until(self, text: str) -> None:
        """Wait until the screen shows `text`."""
        wait(lambda: text in self.screen(), lambda: f"no {text!r} in\n{self.screen()}")

    def until_data(self) -> None:
        """Wait until both first lanes have recorded some steps, and the screen shows them."""
        wait(lambda: len(self.runs()) >= 2 and all(last_step(run) >= 3 for run in self.runs()[:2]), self.screen)
        self.until("by layer")
        self.until("ayer 0 gets")

    def until_whole(self, code: int) -> None:
        """Wait until the command has ended with `code`, has left the terminal as it was, and no process."""
        self.until(f"ended with {code}")
        # No alternate screen, a cursor, no mouse mode.
        flags = "#{alternate_on}#{cursor_flag}#{mouse_any_flag}"
        wait(lambda: self.tmux("display", "-p", flags).strip() == "010", self.screen)
        self.until_over()

    def until_over(self) -> None:
        """Wait until no process of the command is left."""
        wait(lambda: not self.running(), lambda: self.running())

    def running(self) -> list[str]:
        """The command lines of the command's processes."""
        return list(processes(self.marker).values())

    def pid(self, part: str) -> int:
        """The oldest process whose command line holds `part`."""
        return min(pid for pid, command in processes(self.marker).items() if part in command)

    def runs(self) -> list[Path]:
        """The run files of the lab, oldest first."""
        return sorted((self.data / "runs").glob("*.gradtui"))

    def close(self) -> None:
        """End everything."""
        self.tmux("kill-server")
        for pid in processes(self.marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait(lambda: not self.running(), lambda: self.running())


@pytest.fixture
def make_tmux(tmp_path: Path, scratch: Path) -> Iterator[Callable[[], Tmux]]:
    """Makes terminals whose labs share a data directory."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc to see processes")
    made: list[Tmux] = []

    def make() -> Tmux:
        made.append(Tmux(tmp_path / "data", scratch))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def tmux(make_tmux: Callable[[], Tmux]) -> Tmux:
    return make_tmux()


def assert_complete(runs: list[Path]) -> None:
    """There are run files, and none has a hole before its last step."""
    assert runs
    for run in runs:
        with contextlib.closing(RunReader(run)) as reader:
            assert len(reader.losses()) == reader.last_step + 1
