"""`gradtui bench`: what gradtui costs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gradtui.cli.options import presets_option
from gradtui.errors import USAGE, Failure


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="More is steadier.")
@click.option("--quick", is_flag=True, help="The smallest size: shows that it works, its figures say nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of lines.")
@presets_option()
def bench(names: tuple[str, ...], repeat: int, quick: bool, as_json: bool, directories: tuple[Path, ...]) -> None:
    """What gradtui costs, as ratios to a baseline in the same run.

    NAME is one of probe, lane, redraw, start, keys, beside, sites, scale; all of them where none is named. soak
    watches memory for as many minutes as --repeat says; scale makes up runs of --repeat × 100,000 steps. What is
    trained is always the shipped preset post-ln.
    """
    from gradtui.bench import BENCHES, LONG, Size, load

    for name in names:
        if name not in BENCHES:
            raise Failure(f"there is no benchmark {name!r}; there are: {', '.join(BENCHES)}", USAGE)
    results = []
    for name in names or [name for name in BENCHES if name not in LONG]:
        for result in load(name)(Size(repeat, quick)):
            results.append(asdict(result))
            if not as_json:
                click.echo(result.line())
    if as_json:
        click.echo(json.dumps(results))
