"""A temporary directory for each test session, in which nothing may be left behind."""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

# What torch puts there for itself: compiled code, and the logs of processes that are started together.
OF_TORCH = ("torchinductor_", "torchelastic_", "torch_compile_debug")
# What multiprocessing puts there, and removes when this process ends.
OF_THIS_PROCESS = "pymp-"


class Leftovers:
    """Sets TMPDIR for this process and those it starts; a file that is there at the end fails the session.

    Each process of pytest-xdist gets a directory of its own, so that a test can be named with what it has left.
    pytest's own directories (`tmp_path`) stay where they are without this plugin.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._worker = hasattr(config, "workerinput")
        self._config = config
        self._left: dict[str, str] = {}  # file: the test that was running when it came
        self._session: pytest.Session | None = None
        before = tempfile.gettempdir()
        name = config.workerinput["workerid"] if self._worker else "gradtui-tests-"  # type: ignore[attr-defined]
        if self._worker:
            self._directory = Path(before) / name
            self._directory.mkdir()
        else:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", before)
            self._directory = Path(tempfile.mkdtemp(prefix=name))
            # After multiprocessing has removed what it has put there (at priority -100).
            multiprocessing.util.Finalize(
                None, shutil.rmtree, (self._directory,), {"ignore_errors": True}, exitpriority=-1000
            )
        self._directory.chmod(0o711)  # a test may have to enter it as another user
        os.environ["TMPDIR"] = str(self._directory)
        tempfile.tempdir = None  # what gettempdir() has remembered

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._worker or not self._config.getoption("numprocesses", None):
            for path in self._directory.iterdir():
                self._left.setdefault(str(path), nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._worker:
            self._config.workeroutput["left"] = self._left  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left.update(getattr(node, "workeroutput", {}).get("left", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Runs when every worker has ended, and has removed what is removed at exit."""
        workers = list(self._directory.glob("gw*/"))
        allowed = OF_TORCH if workers else (*OF_TORCH, OF_THIS_PROCESS)
        found = [path for directory in (workers or [self._directory]) for path in directory.iterdir()]
        left = [path for path in found if not path.name.startswith(allowed)]
        if left and self._session is not None:
            terminalreporter.section("left in the temporary directory", red=True)
            for path in left:
                terminalreporter.line(f"{path}  ({self._left.get(str(path), 'by no test')})")
            if self._session.exitstatus == pytest.ExitCode.OK:
                self._session.exitstatus = pytest.ExitCode.TESTS_FAILED
