"""`gradtui verify`: the lesson's claims, checked by experiment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradtui import paths
from gradtui.cli.options import gathered, language_option, presets_option
from gradtui.cli.output import notice, progress_bar, writable_data_directory
from gradtui.errors import FAILURE, USAGE, Failure
from gradtui.i18n import system_language
from gradtui.presets import load_library

if TYPE_CHECKING:
    from gradtui.verify.claims import Claim, Claims


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of `gradtui verify`, as given."""

    names: tuple[str, ...]
    seeds: int
    quick: bool
    jobs: int | None
    as_json: bool
    only_list: bool
    language: str | None
    directories: tuple[Path, ...]

    def chosen(self, known: Claims) -> list[Claim]:
        """The claims to check, at least one; raises Failure."""
        from gradtui.verify.claims import ClaimError

        try:
            claims = known.pick(self.names) if self.names else list(known.claims.values())
        except ClaimError as error:
            raise Failure(str(error), USAGE) from error
        if self.quick:
            claims = [claim for claim in claims if claim.quick]
        if not claims:
            raise Failure("there is no claim to check" + (" in the quick set" if self.quick else ""), USAGE)
        return claims


@click.command()
@click.argument("names", nargs=-1, metavar="[ID]...")
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N", help="How many.")
@click.option("--quick", is_flag=True, help="Only the claims that are checked within seconds.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes at once; default: one a core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of the table.")
@click.option("--list", "only_list", is_flag=True, help="List the claims and check nothing.")
@language_option
@presets_option("Also read presets from DIR, and claims from DIR/claims; may be given several times.")
@gathered(VerifyOptions)
def verify(options: VerifyOptions) -> None:
    """Check the lesson's claims by experiment: all of them, or those called ID.

    Every claim is measured with the seeds 0, 1, 2 …; a second call only does what has changed. A claim that does
    not hold is a result, and no failure: the exit code is 1 only where something could not be checked.
    """
    from gradtui.verify import VerifyError
    from gradtui.verify.claims import load_claims

    language = options.language or system_language()
    library, known = load_library(options.directories), load_claims(options.directories)
    for error in (*library.errors, *known.errors):
        notice(str(error))
    claims = options.chosen(known)
    if options.only_list:
        _list(claims, language)
        return
    data = writable_data_directory("results are kept")

    from gradtui.engine.__main__ import usable_cores
    from gradtui.verify.check import Setup, check
    from gradtui.verify.report import table
    from gradtui.verify.store import machine, torch_version

    setup = Setup(
        seeds=range(options.seeds),
        at_once=options.jobs or usable_cores(),
        directory=data / "verify",
        log=paths.log_directory(data) / "verify.log",
    )
    bar = progress_bar(1, "verify")

    def progress(done: int, whole: int) -> None:
        bar.length = max(1, whole)
        bar.update(done - bar.pos)

    try:
        with bar:
            results = check(claims, library.presets, setup, progress)
    except VerifyError as failure:
        raise Failure(str(failure)) from failure
    except OSError as failure:
        raise Failure(f"{data / 'verify'} cannot be written: {failure.strerror}") from failure
    if options.as_json:
        click.echo(json.dumps([result.as_json() for result in results], allow_nan=False))
        for result in results:
            if result.problem:
                notice(f"{result.claim.id}: {result.problem}")
    else:
        for line in table(results, language):
            click.echo(line)
        seeds = ", ".join(map(str, range(options.seeds)))
        click.echo(f"\n{machine()}, {os.cpu_count()} cores · torch {torch_version()} · seeds {seeds}")
    if known.errors or any(result.problem for result in results):
        sys.exit(FAILURE)


def _list(claims: Sequence[Claim], language: str) -> None:
    width = max(len(claim.id) for claim in claims)
    for claim in claims:
        click.echo(f"{claim.id:{width}}  {claim.lesson}  {claim.says(language)}")
