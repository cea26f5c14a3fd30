"""Runs a script without a screen: this process becomes the script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from gradtui.script.plan import Plan, command, environment


def become(arguments: Sequence[str], module: bool, plan: Plan) -> NoReturn:
    """Go on as `python SCRIPT`: same process, same terminal, same signals. Raises OSError."""
    line, variables = command(arguments, module), environment(plan, os.environ)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "posix":
        os.execve(line[0], line, variables)
    # Elsewhere a process cannot become another one; ctrl+c goes to both.
    process = subprocess.Popen(line, env=variables)
    while True:
        try:
            sys.exit(process.wait())
        except KeyboardInterrupt:
            continue
