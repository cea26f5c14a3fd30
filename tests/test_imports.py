"""What may be loaded by what. A subprocess each, so that no other test has loaded it before."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = [
    "gradtui",
    "gradtui.cli.main",
    "gradtui.help",
    "gradtui.presets",
    "gradtui.paths",
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


def loaded_after(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("module", LIGHT)
def test_neither_screen_nor_command_loads_torch(module: str) -> None:
    assert "torch" not in loaded_after(module)


@pytest.mark.parametrize("module", ["gradtui.cli.main", "gradtui.help.tables", "gradtui.presets", "gradtui.paths"])
def test_the_command_line_loads_nothing_of_the_screen_at_start_up(module: str) -> None:
    assert not {"textual", "plotext", "fsrs"} & loaded_after(module)


@pytest.mark.parametrize("module", ["gradtui.engine.lane", "gradtui.probe.meter", "gradtui.zoo.model"])
def test_training_never_loads_the_screen(module: str) -> None:
    assert not {"textual", "plotext"} & loaded_after(module)
