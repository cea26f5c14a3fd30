"""A signal that comes while gradtui is starting: it ends at once, without a crash and with a whole terminal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ui.terminal.conftest import PYTHON, Tmux

# Sends itself SIGTERM when it is about to load a module or to run the app: no matter how long it takes until then.
PROGRAM = """
import os, signal, sys
moment, sent = sys.argv.pop(), []
def send():
    if not sent:
        sent.append(moment)
        os.kill(os.getpid(), signal.SIGTERM)
sys.addaudithook(lambda event, arguments: send() if event == "import" and arguments[0] == moment else None)
if moment == "run":
    from gradtui.ui.app import GradtuiApp
    run = GradtuiApp.run
    GradtuiApp.run = lambda self: (send(), run(self))[1]
from gradtui.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("moment", "handled"),
    [
        ("gradtui.ui.launch", False),  # before gradtui has set anything up: the default action
        ("gradtui.ui.app", False),
        ("run", True),
        ("gradtui.ui.screens.lab", True),
        ("gradtui.engine.client", True),
    ],
)
def test_a_signal_during_start_up_ends_it_without_a_crash(
    tmux: Tmux, tmp_path: Path, moment: str, handled: bool
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    tmux.start(f"{PYTHON} {tmp_path}/program.py {moment}")
    tmux.until_whole(128 + signal.SIGTERM)
    assert "has failed" not in tmux.screen()
    assert ("Terminated" in tmux.screen()) != handled  # so the shell says of a process that a signal has ended


def test_a_signal_while_torch_is_being_loaded_ends_it_without_a_crash(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'loading')!r}, 'w')\nimport time\ntime.sleep(10**6)")
    tmux.start(PYTHONPATH=str(tmp_path))
    tmux.until("loading torch")
    os.kill(tmux.pid("bin/gradtui"), signal.SIGTERM)
    tmux.until_whole(128 + signal.SIGTERM)
    assert "has failed" not in tmux.screen()
