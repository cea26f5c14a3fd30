"""What the process of a script is told about its recording, and the command that starts it.

The script runs as plain `python SCRIPT` or `python -m MODULE`. All that is added is a directory at the front of
PYTHONPATH, whose `sitecustomize` python imports by itself before the script begins; it takes both variables out
of the environment again. So whatever the script sees of python is python's own: `__main__`, `sys.argv`,
tracebacks, exit codes; and no process that the script starts is watched in its turn.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "GRADTUI_EXEC"
MOST_MODELS = 16
INJECTED = Path(__file__).parent / "inject"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to record, and where: `run` is the path of the first model's run file (`run_path` names the others).

    `line` is the command line and `output` the path of the kept output, both only for the reader of the run file;
    `tell` asks to be told at the end where it was recorded (that nothing was, is always told); `pythonpath` is the
    environment's own.
    """

    run: str
    line: str = ""
    name: str = ""
    every: int = 1
    keep: int | None = None
    layers: str | None = None
    metrics: tuple[str, ...] | None = None
    output: str | None = None
    tell: bool = False
    pythonpath: str | None = None


def read(text: str) -> Plan:
    """The plan that `environment` has written into the environment."""
    values = json.loads(text)
    if values["metrics"] is not None:
        values["metrics"] = tuple(values["metrics"])
    return Plan(**values)


def environment(plan: Plan, outer: Mapping[str, str]) -> dict[str, str]:
    """`outer` with what starts the recording."""
    own = outer.get("PYTHONPATH")
    told = {**asdict(plan), "pythonpath": own}
    return {
        **outer,
        VARIABLE: json.dumps(told),
        "PYTHONPATH": os.pathsep.join([str(INJECTED), *([own] if own else [])]),
    }


def command(arguments: Sequence[str], module: bool) -> list[str]:
    """The command line: this interpreter, `arguments` = [SCRIPT or MODULE, *ARGS]."""
    return [sys.executable, *(["-m"] if module else []), *arguments]


def title(arguments: Sequence[str], module: bool) -> str:
    """What to call the script: the name of its file, or of the module."""
    return arguments[0] if module else Path(arguments[0]).name


def default_name(arguments: Sequence[str], module: bool) -> str:
    """What to call the script's run where nobody says so."""
    return arguments[0] if module else Path(arguments[0]).stem


def command_line(arguments: Sequence[str], module: bool) -> str:
    """The script's command line as one would type it."""
    return shlex.join([*(["-m"] if module else []), *arguments])


def run_path(first: Path, number: int) -> Path:
    """The run file of the script's model `number` (1 is the first)."""
    return first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")


def run_paths(first: Path) -> list[Path]:
    """The run files of a script that exist by now, in order."""
    paths = (run_path(first, number) for number in range(1, MOST_MODELS + 1))
    return [path for path in paths if path.exists()]
