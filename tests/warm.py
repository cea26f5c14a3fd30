"""Processes that begin with torch loaded: forks of a server that loads it once for each test process.

For tests that need a process (its exit code, its signals, its output) and not a fresh interpreter: `import torch`
and the first optimizer take 2.5 s of a core, a fork 0.02 s.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

LIMIT_SECONDS = 250  # below pytest's own, so that the output is shown

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch._dynamo", "gradtui.cli.main", "gradtui.engine.headless", "warm"])


@dataclass(frozen=True)
class Done:
    """A process that has ended: `code` is −n where signal n ended it."""

    code: int
    out: str
    err: str


class WarmProcess:
    """`call(*arguments)` in a process of its own, as a program that is started in `directory`.

    The environment is that of this process, as it is now, with `variables` on top. What it writes is kept in
    hidden files there and returned by `wait`; `ignored` are signals that its parent has told it to ignore.
    """

    def __init__(
        self,
        call: Callable[..., object],
        *arguments: object,
        directory: Path,
        variables: Mapping[str, str] | None = None,
        ignored: Sequence[int] = (),
    ) -> None:
        number = len(list(directory.glob(".out-*")))
        self._out, self._err = directory / f".out-{number}", directory / f".err-{number}"
        self._out.touch()
        environment = {**os.environ, **(variables or {})}
        self._process: BaseProcess = _CONTEXT.Process(
            target=_enter, args=(call, arguments, directory, environment, self._out, self._err, ignored)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def wait(self) -> Done:
        """Wait for its end; raises TimeoutError after LIMIT_SECONDS, when it is killed."""
        self._process.join(LIMIT_SECONDS)
        over = not self._process.is_alive()
        self.kill()
        out, err = self._out.read_text(), self._err.read_text()
        if not over:
            raise TimeoutError(f"killed after {LIMIT_SECONDS} s\n{out}\n{err}")
        assert self._process.exitcode is not None
        return Done(self._process.exitcode, out, err)


def run(
    call: Callable[..., object],
    *arguments: object,
    directory: Path,
    variables: Mapping[str, str] | None = None,
) -> Done:
    """`call(*arguments)` in a process of its own, until its end."""
    return WarmProcess(call, *arguments, directory=directory, variables=variables).wait()


def command(*arguments: str) -> None:
    """What the installed console script `gradtui` does."""
    from gradtui.cli.main import main

    sys.argv = ["gradtui", *arguments]
    main()


def script(path: str, *arguments: str) -> None:
    """What `python PATH ARGUMENTS…` does, but for how it ends."""
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def import_without(framework: str, module: str) -> None:
    """Import `module` as if `framework` were not installed, and print what is said."""
    for name in (framework, f"pytorch_{framework}"):
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(error)


def _enter(
    call: Callable[..., object],
    arguments: Sequence[object],
    directory: Path,
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    ignored: Sequence[int],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    tempfile.tempdir = None  # TMPDIR may be another one now
    for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
        file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
    call(*arguments)
