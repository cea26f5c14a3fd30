"""A third language is one more file in gradtui/i18n, and nothing else: shown on a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gradtui
from gradtui.presets import shipped_directory

PACKAGE = Path(gradtui.__file__).parent
MARK = "xx:"  # every sentence of the third language is the English one behind this


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a copy of the package that has a third language, and a preset that knows it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(PACKAGE, home / "gradtui", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped_directory(), home / "gradtui" / "_presets", dirs_exist_ok=True)
    english = (PACKAGE / "i18n" / "en.toml").read_text(encoding="utf-8")
    third = re.sub(r'(?<![\w\\])"(?=\w|\{)', f'"{MARK}', english)
    (home / "gradtui" / "i18n" / "xx.toml").write_text(third, encoding="utf-8")
    own = home / "own"
    own.mkdir()
    (own / "mine.toml").write_text(
        'title = "mine"\ntitle_xx = "xx:mine"\n[about]\nen = "about"\nxx = "xx:about"\n'
    )
    return home


def run(home: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home), "GRADTUI_DATA_DIR": str(home / "data"), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def evaluate(home: Path, code: str, **environment: str) -> Any:
    """What `code` leaves in `result`, in a process that has the copy of the package."""
    script = f"import json, gradtui\n{code}\nprint(json.dumps([gradtui.__file__, result]))"
    file, result = json.loads(run(home, "-c", script, **environment))
    assert Path(file).is_relative_to(home)
    return result


def test_its_sentences_appear(home: Path) -> None:
    code = """
from datetime import timedelta
from gradtui.i18n import LANGUAGES, Words
from gradtui.lesson.words import due_in_words
from gradtui.ui.text.verdict import join
words = Words("xx")
result = [LANGUAGES, words("state.running"), due_in_words(timedelta(hours=5), "xx"), join(words, "a.", "", "b.")]
"""
    assert evaluate(home, code) == [["en", "xx", "zh"], "xx:running", "xx:in 5 hours", "a. b."]


def test_the_locale_chooses_it(home: Path) -> None:
    code = "from gradtui.i18n import system_language\nresult = system_language()"
    assert evaluate(home, code, LC_ALL="xx_XX.UTF-8") == "xx"


def test_presets_claims_and_questions_may_have_it_and_need_not(home: Path) -> None:
    code = """
from pathlib import Path
from gradtui.i18n import Localized
from gradtui.lesson.questions import load_packs
from gradtui.presets import flatten, load_library, unflatten
from gradtui.verify.claims import parse_claim
library = load_library([Path("own")])
assert not library.errors
mine, other = library.get("mine"), library.get("pre-ln")
assert unflatten(flatten(mine)) == mine
measure = {"kind": "metric", "samples": [{"preset": "mine", "quantity": "loss", "stop": 4}]}
texts = {"text": "so", "text_xx": "xx:so"}
claim = parse_claim({"lesson": "1", **texts, "bound": "> 0", "measure": measure}, id="c", source="c")
[pack], errors = load_packs()
result = [
    [mine.name("xx"), mine.summary("xx"), flatten(mine)["title_xx"], other.name("xx") == other.name("en")],
    claim.says("xx"),
    [str(error) for error in errors],
    pack.questions[0].question.get("xx") == pack.questions[0].question.get("en"),
]
"""
    assert evaluate(home, code) == [["xx:mine", "xx:about", "xx:mine", True], "xx:so", [], True]


def test_commands_offer_it(home: Path) -> None:
    assert "[en|xx|zh]" in run(home, "-m", "gradtui", "--help")
    assert "post-ln-collapses" in run(home, "-m", "gradtui", "verify", "--list", "--language", "xx")
