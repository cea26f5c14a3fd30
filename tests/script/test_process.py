"""The process of a script as the screen sees it: it starts, talks, ends, and outlives whoever has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gradtui.script import process
from gradtui.script.plan import run_path
from gradtui.script.process import Script, ScriptError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="posix's signals and sessions")


def until(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    """Starts a script of a given source."""
    monkeypatch.chdir(tmp_path)

    def start(source: str, *arguments: str) -> Script:
        Path("train.py").write_text(source)
        log = tmp_path / "logs" / "out.log"
        script = Script(["train.py", *arguments], run=tmp_path / "out.gradtui", log=log)
        script.start()
        return script

    return start


def written(script: Script) -> str:
    """What the script itself has written."""
    lines = script.log.read_text().splitlines(True)
    return "".join(line for line in lines if not line.startswith("gradtui: "))


def test_what_a_script_writes_is_kept_as_soon_as_it_is_written(make: Callable[..., Script]) -> None:
    script = make(
        "import sys\nprint('out', *sys.argv[1:])\nsys.stderr.write('err\\n')\nprint(input().upper())\nsys.exit(7)",
        "a",
    )
    assert script.title == "train.py"
    until(lambda: "err" in written(script))
    assert written(script) == "out a\nerr\n"
    assert script.exit_code is None
    script.say("yes\n")
    until(lambda: script.exit_code is not None)
    assert (script.exit_code, written(script)) == (7, "out a\nerr\nYES\n")
    assert script.log.read_text().endswith("gradtui: nothing was recorded: the script did not import torch\n")
    script.say("nobody listens\n")
    script.interrupt()
    script.terminate()


def test_a_script_that_reads_nothing_holds_nobody_up(make: Callable[..., Script]) -> None:
    script = make("import time\ntime.sleep(60)")
    for _ in range(100):
        script.say("x" * 5000)
    script.terminate()
    until(lambda: script.exit_code == -signal.SIGTERM)


def test_an_interrupt_is_what_ctrl_c_would_be(make: Callable[..., Script]) -> None:
    source = "import time\nprint(1)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('saved')"
    script = make(source)
    until(lambda: written(script))
    script.interrupt()
    until(lambda: script.exit_code == 0)
    assert written(script) == "1\nsaved\n"


def test_a_script_that_will_not_end_is_killed_with_all_that_it_has_started(
    make: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)
    script = make(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid)\n"
        "time.sleep(60)"
    )
    until(lambda: written(script).endswith("\n"))
    child = int(written(script))
    script.terminate()
    until(lambda: script.exit_code == -signal.SIGKILL)
    until(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    """Whether there is a process `pid` that is more than the memory of one."""
    try:
        os.kill(pid, 0)
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    except ProcessLookupError:
        return False
    return bool(state.strip()) and not state.strip().startswith("Z")


def test_a_script_that_is_left_running_goes_on_by_itself(make: Callable[..., Script], tmp_path: Path) -> None:
    script = make("import sys, time\nprint(sys.stdin.read() == '')\ntime.sleep(0.3)\nprint('done')")
    assert os.getsid(script.pid) == script.pid  # no terminal's signals reach it
    script.detach()
    until(lambda: written(script) == "True\ndone\n")
    until(lambda: script.exit_code == 0)


def test_run_files_come_in_order_however_they_appear(tmp_path: Path) -> None:
    script = Script(["train.py"], run=tmp_path / "a[1].gradtui", log=tmp_path / "x.log")
    assert script.runs() == []
    expected = [run_path(tmp_path / "a[1].gradtui", number) for number in (1, 2, 10)]
    for path in reversed(expected):
        path.touch()
    (tmp_path / "a[1]-x.gradtui").touch()
    assert script.runs() == expected


def test_why_a_script_cannot_be_started_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = Script(["train.py"], run=tmp_path / "a.gradtui", log=tmp_path / "file" / "x.log")
    with pytest.raises(ScriptError, match=r"train\.py cannot be started: .*log"):
        script.start()
    assert (script.pid, script.exit_code) == (0, None)


def test_a_script_on_the_screen_records_too(make: Callable[..., Script]) -> None:
    source = (Path(__file__).parent / "trained.py").read_text()
    script = make(source)
    until(lambda: script.exit_code is not None)
    assert script.exit_code == 0, written(script)
    assert script.runs() == [script.run]
    assert "gradtui" not in script.log.read_text()
