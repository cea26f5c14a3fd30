"""What may be loaded by what: in processes of their own, in which nothing is loaded yet."""

from __future__ import annotations

import json
import subprocess
import sys

LIGHT = [
    "gradtui",
    "gradtui.paths",
    "gradtui.presets",
    "gradtui.cli.main",
    "gradtui.help.tables",
    "gradtui.presets.parts",
    "gradtui.runs.reader",
    "gradtui.runs.writer",
    "gradtui.analysis.verdict",
    "gradtui.charts.render",
    "gradtui.lesson.progress",
    "gradtui.engine.client",
    "gradtui.engine.supervisor",
    "gradtui.ui.app",
    "gradtui.ui.launch",
]
PROGRAM = """
import importlib, json, sys
found = {}
for name in sys.argv[2:]:
    importlib.import_module(name)
    for package in sys.argv[1].split(","):
        if package in sys.modules:
            found.setdefault(package, name)
print(json.dumps(found))
"""


def loads(packages: set[str], modules: list[str]) -> dict[str, str]:
    """Import `modules` one after the other; which of `packages` were loaded, and at which module."""
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(packages)), *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_neither_screen_nor_command_loads_torch() -> None:
    assert loads({"torch"}, LIGHT) == {}


def test_the_command_line_loads_nothing_of_the_screen_at_start_up() -> None:
    assert (
        loads(
            {"textual", "plotext", "fsrs"},
            ["gradtui.paths", "gradtui.presets", "gradtui.cli.main", "gradtui.help.tables"],
        )
        == {}
    )


def test_training_never_loads_the_screen() -> None:
    training = ["gradtui.zoo.model", "gradtui.probe.meter", "gradtui.engine.lane"]
    assert loads({"textual", "plotext"}, training) == {}
