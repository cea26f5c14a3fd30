"""`gradtui runs`: the list of recorded runs, and removing some."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradtui.cli.options import gathered
from gradtui.cli.output import file_size, notice, printable
from gradtui.cli.run_files import recorded, run_files
from gradtui.errors import USAGE, Failure

if TYPE_CHECKING:
    from gradtui.analysis.listing import Listed
    from gradtui.i18n import Words

HEADINGS = ("NAME", "WHAT", "WHEN", "STEPS", "STATE", "SIZE", "VERDICT")
NUMBERS = (HEADINGS.index("STEPS"), HEADINGS.index("SIZE"))  # aligned to the right
WHAT_WIDTH = 36
SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


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

    if directory is None:
        directory = recorded()
    elif not directory.is_dir():
        raise Failure(f"{directory} is not a directory", USAGE)
    found = list_runs(directory)
    if as_json:
        click.echo(json.dumps([_as_json(run) for run in found], allow_nan=False))
        return
    if not found:
        notice(f"there is no run file in {directory}")
        return
    for line in _table(found):
        click.echo(line)


def _table(found: Sequence[Listed]) -> Iterator[str]:
    """The list as aligned lines: a heading, then a run each; of one that cannot be read, name and reason."""
    from rich.cells import cell_len, set_cell_size

    from gradtui.i18n import Words, system_language

    words = Words(system_language())
    read = [_row(run, words) for run in found if not run.error]
    widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *read, strict=True)]
    widths[0] = max(widths[0], *(cell_len(printable(run.name)) for run in found))
    widths[1] = min(widths[1], WHAT_WIDTH)

    def aligned(row: Sequence[str]) -> str:
        cells = []
        for index, (text, width) in enumerate(zip(row, widths, strict=True)):
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1) + "…"
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if index in NUMBERS else text + blank)
        return "  ".join(cells).rstrip()

    yield aligned(HEADINGS)
    rows = iter(read)
    for run in found:
        if run.error:
            yield f"{set_cell_size(printable(run.name), widths[0])}  {printable(run.error)}"
        else:
            yield aligned(next(rows))


def _row(run: Listed, words: Words) -> tuple[str, ...]:
    what = f"{run.what} s{run.seed}" if run.source == "preset" and run.seed is not None else run.what
    return (
        printable(run.name),
        printable(what),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started)),
        f"{run.steps:,}",
        _state(run, words),
        file_size(run.size),
        _verdict(run, words),
    )


def _state(run: Listed, words: Words) -> str:
    with contextlib.suppress(KeyError):
        return words(f"state.{run.status}")
    return printable(run.status)


def _verdict(run: Listed, words: Words) -> str:
    from gradtui.ui.text.verdict import STATE_MARKS, verdict_in_short

    verdict = run.verdict
    if verdict is None:
        return ""
    if verdict.state != "nonfinite" and math.isnan(verdict.ratio):
        return STATE_MARKS[verdict.state]
    return verdict_in_short(verdict, words)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The options of `gradtui runs rm`, as given."""

    names: tuple[str, ...]
    yes: bool
    force: bool
    older_than: str | None
    ended: tuple[str, ...]

    def chosen(self) -> list[Listed]:
        """The runs to remove; raises Failure where one that is named may not be removed without --force."""
        from gradtui.analysis.listing import list_runs, look

        age = _age(self.older_than)
        if not self.names and age is None and not self.ended:
            raise Failure("name the runs to remove, or choose with --older-than or --ended", USAGE)
        chosen = [look(path) for path in run_files(self.names)] if self.names else list_runs(recorded())
        if age is not None:
            chosen = [run for run in chosen if run.started <= time.time() - age]
        if self.ended:
            chosen = [run for run in chosen if run.status in self.ended]
        if self.force:
            return chosen
        # By name, what may not be removed is an error; of all runs that were chosen by a rule, it is passed over.
        reasons = [_why_kept(run) for run in chosen]
        if self.names and any(reasons):
            refused = "; ".join(printable(reason) for reason in reasons if reason)
            raise Failure(f"{refused}; --force removes it all the same")
        return [run for run, reason in zip(chosen, reasons, strict=True) if not reason]


@runs.command()
@click.argument("names", nargs=-1, metavar="NAME_OR_FILE...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also what is running, or cannot be read.")
@click.option("--older-than", metavar="AGE", help="Only runs that began so long ago: 90m, 12h, 30d, 8w.")
@click.option("--ended", multiple=True, metavar="STATE", help="Only runs that are done, failed, died …")
@gathered(Removal)
def rm(removal: Removal) -> None:
    """Remove run files, with the output that was kept beside them.

    A name is that of the list, or the beginning of one if it is the only one; a pattern ('post-ln*') may mean
    several. Without a name, --older-than or --ended choose from the data directory.
    """
    from gradtui.analysis.listing import remove

    chosen = removal.chosen()
    if not chosen:
        notice("no run is like that; nothing was removed")
        return
    if not removal.yes:
        _confirm(chosen)
    for run in chosen:
        for path in remove(run.path):
            click.echo(f"removed {printable(str(path))}")


def _confirm(chosen: Sequence[Listed]) -> None:
    """Ask on the terminal; raises Failure unless the answer is yes."""
    from gradtui.analysis.listing import total_size

    count = "1 run" if len(chosen) == 1 else f"{len(chosen)} runs"
    if not (sys.stdin and sys.stdin.isatty()):
        raise Failure(f"there is no terminal to ask on; --yes removes {count}", USAGE)
    for run in chosen:
        click.echo(f"{printable(run.name)}  {file_size(run.size)}", err=True)
    if not click.confirm(f"Remove {count} ({file_size(total_size(chosen))})?", err=True):
        raise Failure("nothing was removed")


def _why_kept(run: Listed) -> str:
    """Why the run is not removed without --force; empty where it may be."""
    if run.error:
        return run.error
    return f"{run.name} is {run.status}" if run.status in ("running", "paused") else ""


def _age(text: str | None) -> float | None:
    """Seconds; raises Failure."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", text)
    if match is None:
        raise Failure(f"--older-than {text}: a number and m, h, d or w, such as 30d", USAGE)
    return int(match[1]) * SECONDS[match[2]]
