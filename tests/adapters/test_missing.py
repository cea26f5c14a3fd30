"""What is said where a framework is not installed, and what the package costs where none is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import warm


@pytest.mark.parametrize(("module", "package"), [("huggingface", "transformers"), ("lightning", "lightning")])
def test_a_missing_framework_is_answered_with_what_to_install(module: str, package: str, tmp_path: Path) -> None:
    done = warm.run(warm.import_without, package, f"gradtui.adapters.{module}", directory=tmp_path)
    assert done.out == f"this callback is for {package}, which is not installed here: pip install {package}\n"


def test_the_package_of_adapters_loads_no_framework() -> None:
    program = "import sys, gradtui.adapters; print({'torch', 'transformers', 'lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
