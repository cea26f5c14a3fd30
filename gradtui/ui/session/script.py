"""A script of somebody's own that runs beside the screen: what the lab asks of it, and how it ended in words."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Protocol

from gradtui.i18n import Words


class Script(Protocol):
    """A process that outlives the screen. Its exit code is None while it runs, −n where signal n ended it."""

    log: Path
    run: Path
    title: str

    @property
    def pid(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def runs(self) -> list[Path]: ...
    def say(self, text: str) -> None: ...
    def interrupt(self) -> None: ...
    def terminate(self) -> None: ...
    def detach(self) -> None: ...


def shell_code(exit_code: int) -> int:
    """The exit code as a shell has it: 128 + n where signal n ended the process."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def ending(script: Script, words: Words) -> str:
    """How the script stands: that it runs, its exit code, or the signal that ended it."""
    code = script.exit_code
    if code is None:
        return words("script.runs", pid=script.pid)
    if code >= 0:
        return words("script.ended", code=code)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = ""
    return words("script.killed", number=-code, name=f" ({name})" if name else "")
