"""`gradtui presets`: the list of presets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gradtui.cli.options import presets_option
from gradtui.cli.output import notice
from gradtui.errors import FAILURE
from gradtui.i18n import ENGLISH
from gradtui.presets import Library, flatten, load_library


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Every preset in full, as one JSON array.")
@presets_option()
def presets(as_json: bool, directories: tuple[Path, ...]) -> None:
    """List the presets."""
    library = load_library(directories)
    for error in library.errors:
        notice(str(error))
    if as_json:
        click.echo(json.dumps([flatten(preset) for preset in library.presets.values()]))
    else:
        for line in _lines(library):
            click.echo(line)
    if library.errors:
        sys.exit(FAILURE)


def _lines(library: Library) -> Iterator[str]:
    """A heading for each group, a line for each preset: the lesson's first nine with the lab's key."""
    width = max((len(name) for name in library.presets), default=0)
    digits = iter("123456789")
    group = ""
    for preset in library.presets.values():
        if preset.group != group:
            group = preset.group
            yield f"{group}:"
        key = next(digits, " ") if group == "lesson" else " "
        about = f" — {preset.summary(ENGLISH)}" if preset.summary(ENGLISH) else ""
        yield f"{key}  {preset.id:{width}}  {preset.name(ENGLISH)}{about}"
