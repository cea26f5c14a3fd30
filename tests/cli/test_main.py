"""The console script: what an error looks like, and what it exits with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from gradtui.cli.main import cli, main
from gradtui.errors import Failure
from gradtui.presets import PresetError
from gradtui.runs import RunError

Ended = tuple[int, str, str]
Call = Callable[..., Ended]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the console script in this process: `call("presets")` is (exit code, stdout, stderr)."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["gradtui", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int)
        return code, out, err

    return run


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Adds a command `fail` that raises what it is given."""

    def add(error: BaseException) -> None:
        @click.command("fail")
        def fail() -> None:
            raise error

        monkeypatch.setitem(cli.commands, "fail", fail)

    return add


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failure("it failed"), 1),
        (Failure("it failed", 2), 2),
        (Failure("it failed", 130), 130),
        (PresetError("it failed"), 2),
        (RunError("it failed"), 1),
        (click.ClickException("it failed"), 1),
    ],
)
def test_an_expected_error_is_one_sentence_and_its_exit_code(
    call: Call, failing: Callable[[BaseException], None], error: Exception, code: int
) -> None:
    failing(error)
    assert call("fail") == (code, "", "gradtui: it failed\n")


def test_a_wrong_option_says_where_the_right_ones_are_listed(call: Call) -> None:
    code, out, err = call("run", "post-ln", "--steps", "few")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"gradtui: .*'few' is not a valid integer.* \(see: gradtui run --help\)\n", err)


def test_an_unexpected_error_is_one_sentence_and_its_traceback_is_in_the_log(
    call: Call, failing: Callable[[BaseException], None]
) -> None:
    failing(ZeroDivisionError("by zero"))
    code, out, err = call("fail")
    assert (code, out) == (1, "")
    found = re.fullmatch(r"gradtui: ZeroDivisionError: by zero \(details: (.*)\)\n", err)
    assert found is not None
    log = Path(found[1]).read_text(encoding="utf-8")
    assert "Traceback" in log
    assert "raise error" in log


def test_an_aborted_question_ends_quietly(call: Call, failing: Callable[[BaseException], None]) -> None:
    failing(click.exceptions.Abort())
    assert call("fail") == (130, "", "")


def test_version_and_help_are_no_errors(call: Call) -> None:
    assert re.fullmatch(r"gradtui \d+\.\d+\.\d+\n", call("--version")[1])
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    for name in cli.commands:
        assert re.search(rf"^  {name}\s", out, re.MULTILINE)
