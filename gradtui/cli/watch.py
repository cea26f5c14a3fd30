"""`gradtui watch`: the lab's charts on run files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gradtui import paths
from gradtui.cli.options import language_option, presets_option
from gradtui.errors import USAGE, Failure


@click.command()
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]...")
@language_option
@presets_option()
def watch(files: tuple[Path, ...], language: str | None, directories: tuple[Path, ...]) -> None:
    """The lab's charts on run files, live or finished; several FILEs are overlaid.

    Without FILE: the newest run, or the first to come; o picks others. A run file holds the preset that it was
    made from, so --presets changes nothing here.
    """
    from gradtui.ui.launch import launch_pick, launch_watch

    if not files:
        sys.exit(launch_pick(paths.run_directory(paths.data_directory()), language=language))
    for file in files:
        if not file.is_file():
            raise Failure(f"{file} is not there, or is not a file; name a run file (*.gradtui)", USAGE)
    sys.exit(launch_watch(files, language=language))
