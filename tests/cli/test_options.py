"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gradtui.cli.main import cli
from gradtui.i18n import LANGUAGES


def option(command: click.Command, name: str) -> click.Option | None:
    return next((p for p in command.params if isinstance(p, click.Option) and name in p.opts), None)


def test_every_command_offers_the_same_languages_and_devices() -> None:
    for command in (cli, *cli.commands.values()):
        language, device = option(command, "--language"), option(command, "--device")
        if language is not None:
            assert isinstance(language.type, click.Choice)
            assert tuple(language.type.choices) == LANGUAGES
        if device is not None:
            assert isinstance(device.type, click.Choice)
            assert tuple(device.type.choices) == ("auto", "cpu", "cuda", "mps")


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_presets_are_read_from_directories_before_and_after_the_command_later_ones_win(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    for name in order:
        directory = tmp_path / name
        directory.mkdir()
        (directory / f"only-{name}.toml").write_text(f'title = "only {name}"\n')
        (directory / "both.toml").write_text(f'title = "from {name}"\n')
    before, after = (str(tmp_path / name) for name in order)
    result = CliRunner().invoke(cli, ["--presets", before, "presets", "--presets", after])
    assert result.exit_code == 0, result.output
    assert "only a" in result.stdout
    assert "only b" in result.stdout
    assert f"from {order[1]}" in result.stdout
    assert f"from {order[0]}" not in result.stdout


def test_presets_are_also_read_from_a_directory_given_only_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('title = "my own"\n')
    result = CliRunner().invoke(cli, ["--presets", str(tmp_path), "presets"])
    assert "my own" in result.stdout
