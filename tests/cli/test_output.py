"""What several commands print: sizes, text from files, where it is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtui.cli.output import file_size, printable, writable_data_directory


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_400, "99.4 kB"),
        (99_600, "100 kB"),
        (999_600, "1.0 MB"),
        (4_400_000, "4.4 MB"),
        (5 * 10**9, "5.0 GB"),
        (3 * 10**16, "30000 TB"),
    ],
)
def test_a_size_has_three_digits_at_most_and_the_unit_that_fits(count: int, text: str) -> None:
    assert file_size(count) == text


def test_text_from_a_file_gives_the_terminal_no_orders() -> None:
    assert printable("post-ln\x1b[31m\n层") == "post-ln�[31m�层"


def test_the_data_directory_is_used_without_a_word_where_it_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert writable_data_directory("recording") == tmp_path / "data"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_data_directory_that_cannot_be_written_is_replaced_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRADTUI_DATA_DIR", str(tmp_path / "file" / "data"))
    instead = writable_data_directory("recording", quiet=quiet)
    assert instead.is_dir()
    said = capsys.readouterr().err
    assert said == (
        ""
        if quiet
        else f"gradtui: {tmp_path}/file/data cannot be written: Not a directory; recording in {instead}\n"
    )
    instead.rmdir()
