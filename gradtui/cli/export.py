"""`gradtui export`: a run as a table, an archive or a figure."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from gradtui.cli.options import gathered
from gradtui.cli.output import notice
from gradtui.cli.run_files import one_run_file
from gradtui.errors import FAILURE, USAGE, Failure

if TYPE_CHECKING:
    from gradtui.export import Choice
    from gradtui.runs.reader import RunReader

TABLES = ("csv", "jsonl")
FIGURES = ("svg", "png")
FORMATS = (*TABLES, "npz", *FIGURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of `gradtui export`, as given."""

    file: str
    kind: str
    metrics: tuple[str, ...]
    steps: str | None
    out: str | None
    force: bool

    def range(self) -> tuple[int | None, int | None]:
        """First step and the one after the last, None where it is left out; raises Failure."""
        if self.steps is None:
            return None, None
        match = re.fullmatch(r"(\d*):(\d*)", self.steps, re.ASCII)
        start, stop = (int(part) if part else None for part in match.groups()) if match else (0, 0)
        if match is None or (stop is not None and (start or 0) >= stop):
            raise Failure(
                f"--steps {self.steps}: must be A:B with 0 ≤ A < B, steps A to B - 1; "
                "either may be left out (100: or :50)",
                USAGE,
            )
        return start, stop

    def choice(self, run: RunReader) -> Choice:
        """What of `run` is exported; raises Failure."""
        from gradtui.export import LOSS, ExportError, choose

        metrics = self.metrics or (*run.metrics, LOSS)
        if not self.metrics and self.kind in FIGURES:
            from gradtui.export.figure import default_metric

            metrics = (default_metric(run),)
        try:
            return choose(run, metrics, *self.range())
        except ExportError as error:
            raise Failure(str(error), USAGE) from error

    def target(self, run: Path) -> Path | None:
        """The file to write; None is stdout. Raises Failure."""
        if self.out == "-" or (self.out is None and self.kind in TABLES):
            if self.kind not in TABLES and sys.stdout.isatty():
                raise Failure(f"{self.kind} is not for a terminal; --out FILE writes a file", USAGE)
            return None
        target = run.with_suffix(f".{self.kind}") if self.out is None else Path(self.out)
        if target.is_dir():
            raise Failure(f"--out {target} is a directory; name a file", USAGE)
        if not target.absolute().parent.is_dir():
            raise Failure(f"--out {target}: the directory {target.absolute().parent} is not there", USAGE)
        if target.absolute().resolve() == run.absolute().resolve():
            raise Failure(f"--out {target} is the run itself; name another file", USAGE)
        if target.exists() and not self.force:
            raise Failure(f"{target} already exists; --force overwrites it", USAGE)
        return target


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this, and others so named.")
@click.option("--steps", metavar="A:B", help="Only steps A ≤ s < B; either may be left out.")
@click.option("--out", metavar="PATH", help="Where to; - is stdout. Default: stdout, or a file beside FILE.")
@click.option("--force", is_flag=True, help="Overwrite.")
@gathered(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a run as a table (csv, jsonl), NumPy archive (npz) or figure (svg, png).

    FILE is a run file, or the name of one in the data directory. Tables are in long form: a line for each step,
    site and metric, and for each loss. A value that is not finite is empty (null), and named in a field beside it;
    one that does not exist has no line. Figures need matplotlib: pip install 'gradtui[export]'.
    """
    from gradtui.export import ExportError
    from gradtui.runs.reader import RunReader

    path, kind = one_run_file(options.file), options.kind
    with contextlib.closing(RunReader(path)) as run:
        choice = options.choice(run)
        target = options.target(path)
        try:
            if target is None:
                _write(run, choice, kind, sys.stdout.buffer)
            else:
                _write_file(run, choice, kind, target)
        except ExportError as error:
            raise Failure(str(error)) from error
        except BrokenPipeError:
            raise  # the reader of the output has seen enough; `main` handles it
        except OSError as error:
            raise Failure(f"{target or 'stdout'} cannot be written: {error.strerror}", FAILURE) from error
        gap = choice.left_out(run)
    if gap is not None:
        how = "are drawn as means" if kind in FIGURES else "are left out"
        notice(f"steps {gap[0]} to {gap[1] - 1} {how}: only a summary of them was kept")
    where = "stdout" if target is None else target
    notice(f"wrote {', '.join(choice.metrics)}, steps {choice.start} to {choice.stop - 1}, to {where}")


def _write_file(run: RunReader, choice: Choice, kind: str, target: Path) -> None:
    """Write all of it, or leave what was there."""
    if target.exists() and not target.is_file():  # a device or a pipe: nothing to replace
        with target.open("wb") as stream:
            _write(run, choice, kind, stream)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with draft.open("xb") as stream:
            _write(run, choice, kind, stream)
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _write(run: RunReader, choice: Choice, kind: str, stream: BinaryIO) -> None:
    from gradtui.export import arrays, figure, table

    if kind in TABLES:
        pieces = table.csv_lines if kind == "csv" else table.jsonl_lines
        for piece in pieces(run, choice):
            stream.write(piece.encode("utf-8", "surrogatepass"))
        stream.flush()
    elif kind == "npz":
        arrays.write_npz(run, choice, stream)
    else:
        figure.write_figure(run, choice, stream, kind)
