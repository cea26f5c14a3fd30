"""Inside the script's process, before it begins: waits for torch, and for the end. Loads nothing of either."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gradtui.script.ending import Ending, how_it_ended
from gradtui.script.plan import Plan, read, run_paths

if TYPE_CHECKING:
    from gradtui.script.watcher import Watcher


def begin(text: str) -> None:
    """Begin to record as the plan in `text` says; restores the environment's PYTHONPATH."""
    plan = read(text)
    if plan.pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = plan.pythonpath
    Session(plan).wait()


class Session:
    """One script's recording, from its first line to its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._watcher: Watcher | None = None
        self._trouble = ""
        self._over = False
        self._ending = Ending(self.close)

    def wait(self) -> None:
        """Look out for torch and for the end: registered before anything of the script's, ours comes last."""
        atexit.register(lambda: self.close(*how_it_ended(self._ending)))
        sys.meta_path.insert(0, OnImport("torch", self._torch_is_there))

    def _torch_is_there(self) -> None:
        try:
            from gradtui.script.watcher import Watcher

            self._ending.watch()
            self._watcher = Watcher(self._plan, self._ending, say)
        except Exception as error:
            self._trouble = f"{type(error).__name__}: {error}"

    def close(self, status: str, reason: str) -> None:
        """The script ends: close its run files and say where they are; only once, and in no forked child."""
        if self._over or os.getpid() != self._pid:
            return
        self._over = True
        if self._watcher is not None:
            self._watcher.close(status, reason)
        for sentence in self._outcome():
            say(sentence)

    def _outcome(self) -> list[str]:
        found = run_paths(Path(self._plan.run))
        if found:
            return [f"recorded in {path}" for path in found if self._plan.tell]
        if os.environ.get("RANK", "0") != "0":
            return []  # the first process records for all of them
        if self._watcher is not None:
            why = self._watcher.why_nothing()
        else:
            why = self._trouble or "the script did not import torch"
        return [f"nothing was recorded: {why}"]


def say(sentence: str) -> None:
    """A word to the user, on the error output, among the script's own."""
    with contextlib.suppress(Exception):
        stream = sys.__stderr__
        if stream is not None:
            stream.write(f"gradtui: {sentence}\n")
            stream.flush()


class OnImport:
    """A finder that finds nothing by itself: it calls `then` once the module `name` has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the others find, its loader told to call."""
        if name != self._name:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._prepare(spec.loader)
                return spec
        return None

    def _prepare(self, loader: Any) -> None:
        # The loader stays what it is, of its own type, for everybody who asks a module for its loader.
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module
