"""What was measured is found again, whole or not at all, until no claim has needed it for a month."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import gradtui
from gradtui.verify.store import BENCHMARK_SOURCES, INVARIANT_SOURCES, TRAINING_SOURCES, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_value_is_kept_and_found_by_another_store(store: Store) -> None:
    store.keep("a", 0.1)
    assert Store(store.directory).value("a") == 0.1
    assert store.value("b") is None
    assert [path.name for path in store.directory.iterdir()] == ["a.json"]


def test_a_damaged_value_is_none(store: Store) -> None:
    (store.directory / "a.json").write_text("half a num")
    assert store.value("a") is None


def test_what_no_claim_has_needed_is_removed_in_time(store: Store) -> None:
    store.keep("old", 1.0)
    store.keep("new", 2.0)
    os.utime(store.directory / "old.json", (0, 0))
    store.prune()
    assert store.value("old") is None
    assert store.value("new") == 2.0


@pytest.mark.parametrize("name", sorted({*TRAINING_SOURCES, *INVARIANT_SOURCES, *BENCHMARK_SOURCES}))
def test_the_sources_that_results_depend_on_exist(name: str) -> None:
    assert (Path(gradtui.__file__).parent / name).exists()
