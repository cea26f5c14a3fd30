"""Starts scripts as plain python does and as gradtui does, for the tests to compare."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EXEC = "from gradtui.cli.exec import exec_script; exec_script(prog_name='gradtui exec')"


@dataclass(frozen=True)
class Done:
    """A process that has ended: −n is the exit code where signal n ended it."""

    code: int
    out: str
    err: str

    @property
    def of_gradtui(self) -> list[str]:
        """What gradtui has said on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("gradtui: ")]

    @property
    def own_err(self) -> str:
        """What the script has said on stderr."""
        return "".join(line for line in self.err.splitlines(True) if not line.startswith("gradtui: "))


def run(
    command: Sequence[str], directory: Path, given: str = "", variables: Mapping[str, str] | None = None
) -> Done:
    """Run `command` in `directory` with `given` as its input."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    done = subprocess.run(
        command, cwd=directory, input=given, env=environment, capture_output=True, text=True, timeout=100
    )
    return Done(done.returncode, done.stdout, done.stderr)


def plain(arguments: Sequence[str], directory: Path, **more: object) -> Done:
    """`python ARGUMENTS…`."""
    return run([sys.executable, *arguments], directory, **more)  # type: ignore[arg-type]


def recorded(arguments: Sequence[str], directory: Path, *options: str, **more: object) -> Done:
    """`gradtui exec --headless OPTIONS… ARGUMENTS…`."""
    return run([sys.executable, "-c", EXEC, "--headless", *options, *arguments], directory, **more)  # type: ignore[arg-type]
