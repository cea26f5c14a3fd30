"""What several commands share: their options, and how a command is given all of its options at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from gradtui.i18n import LANGUAGES

DEVICES = ("auto", "cpu", "cuda", "mps")
PRESETS_HELP = "Also read presets (*.toml) from DIR; may be given several times."

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def presets_option(help: str = PRESETS_HELP) -> Callable[[F], F]:
    """`--presets DIR`, given to the command as `directories`: those before its name, then those after it."""

    def merge(context: click.Context, _option: click.Parameter, given: tuple[Path, ...]) -> tuple[Path, ...]:
        return (*(context.obj or ()), *given)

    return click.option(
        "--presets",
        "directories",
        multiple=True,
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        callback=merge,
        help=help,
    )


language_option = click.option("--language", type=click.Choice(LANGUAGES), help="Default: from the locale.")
device_option = click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True)


def gathered(options: Callable[..., T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Call the command's function with one object, `options(name=value, …)`, in place of an argument per option.

    `options` is a dataclass with a field for each option and argument of the command.
    """

    def decorate(function: Callable[[T], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            function(options(**given))

        return command

    return decorate
