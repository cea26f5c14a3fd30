"""The generated tables: as the registries have it, in each page and in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtui.help.tables import README, Document, documents
from gradtui.metrics import METRICS
from gradtui.presets import load_library, parts
from gradtui.ui.actions import ACTIONS


@pytest.mark.parametrize("document", documents(), ids=lambda document: "/".join(document.path.parts[-2:]))
def test_the_tables_are_up_to_date(document: Document) -> None:
    assert document.text() == document.filled(), "the registries have changed; run: python -m gradtui.help"


def filled(tmp_path: Path, text: str, language: str = "en") -> str:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return Document(path, language).filled()


def test_a_table_is_written_between_its_marks_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    text = "before\n\n<!-- keys: pin quit -->\nold\n<!-- /keys -->\n\nafter\n"
    new = filled(tmp_path, text)
    assert new.startswith(
        "before\n\n<!-- keys: pin quit -->\n\n| key | what it does |\n| --- | --- |\n| `p` | pin it"
    )
    assert new.endswith("| `q` `ctrl+c` `ctrl+q` | quit |\n\n<!-- /keys -->\n\nafter\n")
    assert "old" not in new
    assert filled(tmp_path, new) == new


def test_every_action_metric_preset_and_part_has_a_row(tmp_path: Path) -> None:
    marks = (
        "keys",
        "metrics",
        "presets",
        "parts: model.norm model.topology model.mixer model.feedforward model.init",
    )
    text = "".join(f"<!-- {mark} -->\n<!-- /{mark.partition(':')[0]} -->\n" for mark in marks)
    for language in ("en", "zh"):
        new = filled(tmp_path, text, language)
        names = [
            *METRICS,
            *load_library().presets,
            *parts.NORMS,
            *parts.TOPOLOGIES,
            *parts.MIXERS,
            *parts.FEEDFORWARDS,
            *parts.INITS,
        ]
        assert [name for name in names if f"| `{name}` |" not in new] == []
        assert [action.key for action in ACTIONS.values() if f"`{action.key}`" not in new] == []


def test_presets_of_the_lesson_have_their_digits(tmp_path: Path) -> None:
    new = filled(tmp_path, "<!-- presets: lesson -->\n<!-- /presets -->\n")
    assert "| `1` | `post-ln` | Post-LN |" in new
    assert "| `7` | `pre-rms-100` |" in new
    assert "llama" not in new


def test_metrics_are_chosen_by_whose_runs_have_them(tmp_path: Path) -> None:
    new = filled(tmp_path, "<!-- metrics: derived zoo -->\n<!-- /metrics -->\n")
    assert "local_gain" in new
    assert "trunk_share" in new
    assert "grad_norm" not in new


@pytest.mark.parametrize("mark", ["colours", "keys: fly", "presets: mine"])
def test_a_mark_that_names_nothing_is_an_error(tmp_path: Path, mark: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        filled(tmp_path, f"<!-- {mark} -->\n<!-- /{mark.partition(':')[0]} -->\n")


def test_the_readme_is_one_of_the_documents() -> None:
    assert README in {document.path for document in documents()}
