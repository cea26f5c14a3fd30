"""Claims and presets that are checked in moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradtui.verify.claims import Claim, parse_claim

TINY = """
title = "Tiny"
corpus = "markov"
[model]
layers = 2
width = 8
heads = 2
context = 8
[training]
steps = 6
batch = 2
"""


def a_sample(**changes: Any) -> dict[str, Any]:
    return {"preset": "tiny", "quantity": "loss", "start": 0, "stop": 4, "take": "mean"} | changes


def a_claim(id: str = "claim", *, measure: dict[str, Any] | None = None, **changes: Any) -> Claim:
    table: dict[str, Any] = {
        "lesson": "§2",
        "text": "It is so.",
        "text_zh": "如此。",
        "bound": "> 0",
        "measure": measure or {"kind": "metric", "samples": [a_sample()]},
    }
    return parse_claim(table | changes, id=id, source="test")


@pytest.fixture
def own_presets(tmp_path: Path) -> Path:
    """A directory with the preset `tiny` and room for claims."""
    directory = tmp_path / "own"
    (directory / "claims").mkdir(parents=True)
    (directory / "tiny.toml").write_text(TINY)
    return directory
