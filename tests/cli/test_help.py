"""`gradtui help`: the list of topics, a page as it is, and a page drawn for a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gradtui.cli.main import cli
from gradtui.errors import USAGE, Failure
from gradtui.help import TOPICS, page


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["help", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("arguments", [(), ("--list",), ("--list", "lab")])
def test_the_topics_are_listed_in_order_with_a_line_each(arguments: tuple[str, ...]) -> None:
    lines = said(*arguments).splitlines()
    assert [line.split()[0] for line in lines] == list(TOPICS)
    assert all(len(line.split()) > 4 for line in lines)
    assert "`" not in said()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_is_written_as_markdown_where_there_is_no_terminal(language: str) -> None:
    assert said("metrics", "--language", language) == page("metrics", language)


def test_the_language_is_the_locales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert said("keys").startswith("# 按键\n")


def test_an_unknown_topic_is_one_sentence_with_the_topics_and_exit_code_2() -> None:
    result = CliRunner().invoke(cli, ["help", "colours"])
    assert isinstance(result.exception, Failure)
    assert result.exception.code == USAGE
    assert str(result.exception) == f"there is no page 'colours'; there are: {', '.join(TOPICS)}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_on_a_terminal_a_page_is_drawn_and_goes_through_the_pager(language: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gradtui", "help", "claims", "--language", language],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "PAGER": str(pager), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(inner)
    shown = b""
    try:
        while piece := os.read(outer, 4096):
            shown += piece
    except OSError:  # the end of a terminal, on Linux
        pass
    finally:
        os.close(outer)
        assert process.wait(60) == 0
    text = shown.decode()
    assert text.startswith("PAGED")
    assert "\x1b[1m" in text  # drawn: headings are bold, tables have lines
    assert "────" in text
    assert "| --- |" not in text
    assert ".md)" not in text
    assert "post-ln-collapses" in text
