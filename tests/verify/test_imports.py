"""Only a worker loads torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["gradtui.cli.verify", "gradtui.verify.check", "gradtui.verify.live"])
def test_nothing_that_the_screen_or_the_command_loads_has_torch(module):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"torch", "textual", "plotext"} & loaded
