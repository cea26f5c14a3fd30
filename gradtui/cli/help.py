"""`gradtui help`: the handbook."""

from __future__ import annotations

import io
import re
import shutil
import sys

import click

from gradtui.cli.options import language_option
from gradtui.errors import USAGE, Failure
from gradtui.help import TOPICS, HelpError, page, summary
from gradtui.i18n import system_language

READABLE_WIDTH = 100
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\.md\)")


@click.command("help")
@click.argument("topic", required=False)
@click.option("--list", "only_list", is_flag=True, help="The topics, with a line each; so it is without TOPIC.")
@language_option
def help_command(topic: str | None, only_list: bool, language: str | None) -> None:
    """Show the handbook's page about TOPIC; without one, list the topics.

    On a terminal it is drawn and shown in a pager; elsewhere it is written as it is, in Markdown.
    """
    language = language or system_language()
    if topic is None or only_list:
        width = max(map(len, TOPICS))
        for name in TOPICS:
            about = summary(name, language).replace("`", "")
            click.echo(f"{name:{width}}  {about}")
        return
    try:
        text = page(topic, language)
    except HelpError as error:
        raise Failure(str(error), USAGE) from error
    if sys.stdout.isatty():
        click.echo_via_pager(_drawn(text), color=True)
    else:
        click.echo(text, nl=False)


def _drawn(text: str) -> str:
    """Markdown as a terminal shows it, with the control sequences of its colours."""
    from rich.console import Console
    from rich.markdown import Markdown

    width = min(shutil.get_terminal_size().columns, READABLE_WIDTH)
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    with console.capture() as captured:
        console.print(Markdown(LINK.sub(r"\1", text), hyperlinks=False))
    return captured.get()
