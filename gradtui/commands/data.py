"""`gradtui runs` and `gradtui export`: what is recorded, and getting it out."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradtui import paths
from gradtui.errors import FAILURE, USAGE, Failure

if TYPE_CHECKING:
    from gradtui.analysis.listing import Listed
    from gradtui.runs.reader import RunReader

FIGURES = ("svg", "png")
FORMATS = ("csv", "jsonl", "npz", *FIGURES)
MOST_CANDIDATES = 8
WHAT_WIDTH = 36


class _Runs(click.Group):
    """A group whose name alone, or with a directory, lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Runs)
def runs() -> None:
    """List the recorded runs (also: gradtui runs DIR, gradtui runs --json), or remove some."""


@runs.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def ls(directory: Path | None, as_json: bool) -> None:
    """List the run files in DIR, else in the data directory; newest first."""
    from gradtui.analysis.listing import list_runs

    directory = _directory(directory)
    found = list_runs(directory)
    if as_json:
        click.echo(json.dumps([_as_json(run) for run in found], allow_nan=False))
        return
    if not found:
        click.echo(f"gradtui: there is no run file in {directory}", err=True)
        return
    for line in _table(found):
        click.echo(line)


def _table(found: Sequence[Listed]) -> Iterator[str]:
    from rich.cells import cell_len, set_cell_size

    from gradtui.i18n import Words, system_language

    words = Words(system_language())
    rows = [("NAME", "WHAT", "WHEN", "STEPS", "STATE", "SIZE", "VERDICT")]
    for run in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        if run.error:
            rows.append((_plain(run.name), _plain(run.error), "", "", "", "", ""))
            continue
        what = f"{run.what} s{run.seed}" if run.source == "preset" and run.seed is not None else run.what
        verdict = _verdict(run, words)
        rows.append(
            (_plain(run.name), _plain(what), when, f"{run.steps:,}", _state(run, words), _size(run.size), verdict)
        )
    widths = [max((cell_len(row[i]) for row in rows if row[2]), default=0) for i in range(len(rows[0]))]
    widths[0] = max(cell_len(row[0]) for row in rows)
    widths[1] = min(widths[1], WHAT_WIDTH)
    for row in rows:
        if not row[2]:
            yield f"{set_cell_size(row[0], widths[0])}  {row[1]}"
            continue
        cells = []
        for index, (text, width) in enumerate(zip(row, widths, strict=True)):
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1) + "…"
            right = index in (3, 5)
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if right else text + blank)
        yield "  ".join(cells).rstrip()


def _state(run: Listed, words: Any) -> str:
    with contextlib.suppress(KeyError):
        return str(words(f"state.{run.status}"))
    return _plain(run.status)


def _verdict(run: Listed, words: Any) -> str:
    from gradtui.ui.text.verdict import STATE_MARKS, verdict_in_short

    verdict = run.verdict
    if verdict is None:
        return ""
    if verdict.state != "nonfinite" and math.isnan(verdict.ratio):
        return STATE_MARKS[verdict.state]
    return verdict_in_short(verdict, words)


def _plain(text: str) -> str:
    """Without what a terminal would take for an order."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def _size(count: int) -> str:
    size, units = float(count), ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if size < 999.5 or unit == units[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return ""


def _as_json(run: Listed) -> dict[str, Any]:
    def number(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    verdict = None
    if run.verdict is not None:
        verdict = {
            "state": run.verdict.state,
            "ratio": number(run.verdict.ratio),
            "spread": number(run.verdict.spread),
            "since": run.verdict.since,
        }
    return {
        "name": run.name,
        "file": str(run.path.absolute()),
        "source": run.source or None,
        "what": run.what or None,
        "seed": run.seed,
        "started": number(run.started),
        "ended": number(run.ended),
        "steps": run.steps if not run.error else None,
        "state": run.status or None,
        "reason": run.reason or None,
        "size": run.size,
        "verdict": verdict,
        "error": run.error or None,
    }


@runs.command()
@click.argument("names", nargs=-1, metavar="NAME_OR_FILE...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also what is running, or cannot be read.")
@click.option("--older-than", metavar="AGE", help="Only runs that began so long ago: 90m, 12h, 30d, 8w.")
@click.option("--ended", multiple=True, metavar="STATE", help="Only runs that are done, failed, died …")
def rm(names: tuple[str, ...], yes: bool, force: bool, older_than: str | None, ended: tuple[str, ...]) -> None:
    """Remove run files, with the output that was kept beside them.

    A name is that of the list, or the beginning of one if it is the only one; a pattern ('post-ln*') may mean
    several. Without a name, --older-than or --ended choose from the data directory.
    """
    from gradtui.analysis.listing import list_runs, look, remove, total_size

    age = _age(older_than)
    directory = paths.run_directory(paths.data_directory())
    if not names and older_than is None and not ended:
        raise Failure("name the runs to remove, or choose with --older-than or --ended", USAGE)
    chosen = [look(path) for path in _named(names, directory)] if names else list_runs(directory)
    if age is not None:
        chosen = [run for run in chosen if run.started <= time.time() - age]
    if ended:
        chosen = [run for run in chosen if run.status in ended]
    if not force:
        # By name, what may not be removed is an error; of all runs that were chosen by a rule, it is passed over.
        refused = [run for run in chosen if _why_kept(run)]
        if refused and names:
            reasons = "; ".join(_plain(_why_kept(run)) for run in refused)
            raise Failure(f"{reasons}; --force removes it all the same")
        chosen = [run for run in chosen if run not in refused]
    if not chosen:
        click.echo("gradtui: no run is like that; nothing was removed", err=True)
        return
    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise Failure(f"there is no terminal to ask on; --yes removes {_count(len(chosen))}", USAGE)
        for run in chosen:
            click.echo(f"{_plain(run.name)}  {_size(run.size)}", err=True)
        if not click.confirm(f"Remove {_count(len(chosen))} ({_size(total_size(chosen))})?", err=True):
            raise Failure("nothing was removed")
    for run in chosen:
        for path in remove(run.path):
            click.echo(f"removed {_plain(str(path))}")


def _why_kept(run: Listed) -> str:
    if run.error:
        return run.error
    return f"{run.name} is {run.status}" if run.status in ("running", "paused") else ""


def _count(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _age(text: str | None) -> float | None:
    """Seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", text)
    if match is None:
        raise Failure(f"--older-than {text}: a number and m, h, d or w, such as 30d", USAGE)
    return int(match[1]) * {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}[match[2]]


def _named(names: Sequence[str], directory: Path) -> list[Path]:
    """The files that `names` mean, each once."""
    found: dict[Path, Path] = {}
    for name in names:
        for path in _find(name, directory, several=any(sign in name for sign in "*?[")):
            found.setdefault(path.absolute(), path)
    return list(found.values())


def _find(name: str, directory: Path, *, several: bool) -> list[Path]:
    from gradtui.analysis.listing import find
    from gradtui.runs import SUFFIX

    found = find(name, directory)
    if not found:
        raise Failure(f"there is no run {_plain(name)!r}: neither a file, nor a name in {directory}", USAGE)
    if len(found) > 1 and not several:
        shown = ", ".join(_plain(path.stem) for path in found[:MOST_CANDIDATES])
        more = f" and {len(found) - MOST_CANDIDATES} more" if len(found) > MOST_CANDIDATES else ""
        raise Failure(f"{_plain(name)!r} may mean {shown}{more}; say more of it", USAGE)
    for path in found:
        if path.suffix != SUFFIX:
            raise Failure(f"{path} is not a run file: its name does not end in {SUFFIX}", USAGE)
    return found


def _directory(directory: Path | None) -> Path:
    if directory is None:
        return paths.run_directory(paths.data_directory())
    if not directory.is_dir():
        raise Failure(f"{directory} is not a directory", USAGE)
    return directory


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this, and others so named.")
@click.option("--steps", metavar="A:B", help="Only steps A ≤ s < B; either may be left out.")
@click.option("--out", metavar="PATH", help="Where to; - is stdout. Default: stdout, or a file beside FILE.")
@click.option("--force", is_flag=True, help="Overwrite.")
def export(
    file: str, kind: str, metrics: tuple[str, ...], steps: str | None, out: str | None, force: bool
) -> None:
    """Write a run as a table (csv, jsonl), NumPy archive (npz) or figure (svg, png).

    FILE is a run file, or the name of one in the data directory. Tables are in long form: a line for each step,
    site and metric, and for each loss. A value that is not finite is empty (null), and named in a field beside it;
    one that does not exist has no line. Figures need matplotlib: pip install 'gradtui[export]'.
    """
    from gradtui.export import LOSS, ExportError, choose
    from gradtui.runs.reader import RunReader

    (path,) = _find(file, paths.run_directory(paths.data_directory()), several=False)
    start, stop = _range(steps)
    with contextlib.closing(RunReader(path)) as run:
        if not metrics:
            metrics = (*run.metrics, LOSS)
            if kind in FIGURES:
                from gradtui.export.figure import default_metric

                metrics = (default_metric(run),)
        try:
            choice = choose(run, metrics, start, stop)
        except ExportError as error:
            raise Failure(str(error), USAGE) from error
        target = _target(path, kind, out, force)
        try:
            if target is None:
                _write(run, choice, kind, _stdout())
            else:
                _write_file(run, choice, kind, target)
        except ExportError as error:
            raise Failure(str(error)) from error
        except BrokenPipeError:
            raise  # whoever read has had enough: nothing to complain about
        except OSError as error:
            raise Failure(f"{target or 'stdout'} cannot be written: {error.strerror}", FAILURE) from error
        gap = choice.left_out(run)
    if gap is not None:
        what = "are drawn as means" if kind in FIGURES else "are left out"
        click.echo(f"gradtui: steps {gap[0]} to {gap[1] - 1} {what}: only a summary of them was kept", err=True)
    where = "stdout" if target is None else target
    what = ", ".join(choice.metrics)
    click.echo(f"gradtui: wrote {what}, steps {choice.start} to {choice.stop - 1}, to {where}", err=True)


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"(\d*):(\d*)", text, re.ASCII)
    start, stop = (int(part) if part else None for part in match.groups()) if match else (0, 0)
    if match is None or (stop is not None and (start or 0) >= stop):
        raise Failure(
            f"--steps {text}: must be A:B with 0 ≤ A < B, steps A to B - 1; either may be left out (100: or :50)",
            USAGE,
        )
    return start, stop


def _target(run: Path, kind: str, out: str | None, force: bool) -> Path | None:
    """The file to write; None is stdout."""
    if out == "-" or (out is None and kind in ("csv", "jsonl")):
        if kind not in ("csv", "jsonl") and sys.stdout.isatty():
            raise Failure(f"{kind} is not for a terminal; --out FILE writes a file", USAGE)
        return None
    target = run.with_suffix(f".{kind}") if out is None else Path(out)
    if target.is_dir():
        raise Failure(f"--out {target} is a directory; name a file", USAGE)
    if not target.absolute().parent.is_dir():
        raise Failure(f"--out {target}: the directory {target.absolute().parent} is not there", USAGE)
    if target.absolute().resolve() == run.absolute().resolve():
        raise Failure(f"--out {target} is the run itself; name another file", USAGE)
    if target.exists() and not force:
        raise Failure(f"{target} already exists; --force overwrites it", USAGE)
    return target


def _stdout() -> Any:
    return sys.stdout.buffer


def _write_file(run: RunReader, choice: Any, kind: str, target: Path) -> None:
    """All of it, or no file."""
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


def _write(run: RunReader, choice: Any, kind: str, stream: Any) -> None:
    from gradtui.export import arrays, figure, table

    if kind in ("csv", "jsonl"):
        pieces = table.csv_lines if kind == "csv" else table.jsonl_lines
        for piece in pieces(run, choice):
            stream.write(piece.encode("utf-8", "surrogatepass"))
        stream.flush()
    elif kind == "npz":
        arrays.write_npz(run, choice, stream)
    else:
        figure.write_figure(run, choice, stream, kind)
