"""What is said where a framework is not installed, and what the package costs where none is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules[{hidden!r}] = None
sys.modules["pytorch_lightning"] = None
import gradtui.adapters
assert "torch" not in sys.modules, "the package itself is not free"
try:
    import gradtui.adapters.{module}
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(("module", "package"), [("huggingface", "transformers"), ("lightning", "lightning")])
def test_a_missing_framework_is_answered_with_what_to_install(module: str, package: str) -> None:
    program = PROGRAM.format(hidden=package, module=module)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert said.stdout == f"this callback is for {package}, which is not installed here: pip install {package}\n"
