"""A terminal that is gone or stuck does not keep gradtui from ending."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from conftest import RunMaker
from ui.terminal.conftest import GRADTUI, assert_complete, processes, wait

from gradtui.bench.terminal import Terminal

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to see processes")


def test_a_terminal_that_hangs_up_without_a_signal_is_noticed(make_run: RunMaker) -> None:
    ours, theirs = pty.openpty()
    # In a session of its own, without a controlling terminal, it is sent no SIGHUP.
    process = subprocess.Popen(
        [GRADTUI, "watch", str(make_run())],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    try:
        os.close(theirs)
        seen = b""
        while b"by layer" not in seen:
            seen += os.read(ours, 1 << 16)
        os.close(ours)
        assert process.wait() == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_terminal_that_takes_no_more_output_does_not_keep_it_from_ending(tmp_path: Path, scratch: Path) -> None:
    marker = f"stuck-{uuid.uuid4().hex[:8]}"
    environment = {
        "GRADTUI_DATA_DIR": str(tmp_path / "data"),
        "TMPDIR": str(scratch),
        "LC_ALL": "C.UTF-8",
        "GRADTUI_TEST": marker,
    }
    terminal = Terminal([GRADTUI], environment)
    terminal.wait_for("ayer 0 gets")
    time.sleep(4)  # what the lab writes is not read: the terminal is full, and so is Textual's queue
    os.kill(terminal.pid, signal.SIGTERM)
    _, ended = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(ended) == 128 + signal.SIGTERM
    wait(lambda: not processes(marker), lambda: processes(marker))
    assert_complete(list((tmp_path / "data" / "runs").glob("*.gradtui")))
