"""`gradtui verify`: the lesson's claims, checked by experiment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from gradtui import paths
from gradtui.errors import FAILURE, USAGE, Failure


@click.command()
@click.argument("names", nargs=-1, metavar="[ID]...")
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N", help="How many.")
@click.option("--quick", is_flag=True, help="Only the claims that are checked within seconds.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes at once; default: one a core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of the table.")
@click.option("--list", "only_list", is_flag=True, help="List the claims and check nothing.")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Default: from the locale.")
@click.option(
    "--presets",
    "directories",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also read presets from DIR, and claims from DIR/claims; may be given several times.",
)
@click.pass_context
def verify(
    context: click.Context,
    names: tuple[str, ...],
    seeds: int,
    quick: bool,
    jobs: int | None,
    as_json: bool,
    only_list: bool,
    language: str | None,
    directories: tuple[Path, ...],
) -> None:
    """Check the lesson's claims by experiment: all of them, or those called ID.

    Every claim is measured with the seeds 0, 1, 2 …; a second call only does what has changed. A claim that does
    not hold is a result, and no failure: the exit code is 1 only where something could not be checked.
    """
    from gradtui.i18n import system_language
    from gradtui.presets import load_library
    from gradtui.verify import VerifyError
    from gradtui.verify.claims import ClaimError, load_claims

    language = language or system_language()
    extra = (*(context.obj or ()), *directories)
    library, known = load_library(extra), load_claims(extra)
    for error in (*library.errors, *known.errors):
        click.echo(f"gradtui: {error}", err=True)
    try:
        claims = known.pick(names) if names else list(known.claims.values())
    except ClaimError as wrong:
        raise Failure(str(wrong), USAGE) from wrong
    if quick:
        claims = [claim for claim in claims if claim.quick]
    if not claims:
        raise Failure("there is no claim to check" + (" in the quick set" if quick else ""), USAGE)
    if only_list:
        width = max(len(claim.id) for claim in claims)
        for claim in claims:
            click.echo(f"{claim.id:{width}}  {claim.lesson}  {claim.says(language)}")
        return
    data, reason = paths.usable_data_directory()
    if reason:
        click.echo(f"gradtui: {reason}; results are kept in {data}", err=True)

    from gradtui.verify.check import check
    from gradtui.verify.report import table
    from gradtui.verify.store import machine, torch_version

    # hidden=None would draw a bar into a log file; only a terminal gets one.
    bar = click.progressbar(
        length=1, label="verify", file=sys.stderr, hidden=sys.stderr is None or not sys.stderr.isatty()
    )

    def begin(whole: int) -> None:
        bar.length = max(1, whole)

    try:
        with bar:
            results = check(
                claims,
                library.presets,
                seeds=range(seeds),
                jobs=jobs or cores(),
                directory=data / "verify",
                log=paths.log_directory(data) / "verify.log",
                on_begin=begin,
                on_progress=bar.update,
            )
    except VerifyError as wrong:
        raise Failure(str(wrong)) from wrong
    except OSError as wrong:
        raise Failure(f"{data / 'verify'} cannot be written: {wrong.strerror}") from wrong
    if as_json:
        click.echo(json.dumps([result.as_json() for result in results], allow_nan=False))
        for result in results:
            if result.problem:
                click.echo(f"gradtui: {result.claim.id}: {result.problem}", err=True)
    else:
        for line in table(results, language):
            click.echo(line)
        seeds_used = ", ".join(str(seed) for seed in range(seeds))
        click.echo(f"\n{machine()}, {os.cpu_count()} cores · torch {torch_version()} · seeds {seeds_used}")
    if known.errors or any(result.problem for result in results):
        sys.exit(FAILURE)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
