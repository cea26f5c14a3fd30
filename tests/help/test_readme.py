"""What the README promises: short, true, and with the two commands that others read out of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from gradtui.help import TOPICS
from gradtui.presets import parse_preset

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.encode()) <= 8192


def test_installing_and_testing_are_one_command_of_one_line_each() -> None:
    install, test = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert install == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/gradtui"
    assert re.search(r"^python3 -m venv .*\[test\]", test)  # as .ci/run reads it out


def test_links_and_the_picture_are_there() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert "tests/ui/lab.svg" in targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_every_page_of_the_handbook_is_linked_in_both_languages() -> None:
    for topic in TOPICS:
        for language in ("en", "zh"):
            assert f"](gradtui/help/{language}/{topic}.md)" in README


def test_the_example_of_a_preset_is_read() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) <= 6
    preset = parse_preset(tomllib.loads(example), id="mine", source="README.md")
    assert (preset.model.norm, preset.model.topology) == ("rmsnorm", "post")
