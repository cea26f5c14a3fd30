"""From claims to results, with real workers: each thing once, and what goes wrong is said of that claim alone."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from click.testing import CliRunner
from verify.conftest import a_claim, a_sample

from gradtui.cli.verify import verify
from gradtui.errors import USAGE, Failure
from gradtui.presets import load_preset
from gradtui.runs.reader import RunReader
from gradtui.verify.check import Setup, check
from gradtui.verify.judge import FAILS, HOLDS
from gradtui.verify.plan import make_plan
from gradtui.verify.store import Store

CLAIM = """
lesson = "§2"
text = "It falls."
text_zh = "它在下降。"
bound = "{bound}"
[measure]
kind = "metric"
samples = [{{ preset = "tiny", quantity = "{quantity}", start = 0, stop = 4, take = "mean" }}]
"""


def write(directory, id, bound="> 0", quantity="loss"):
    (directory / "claims" / f"{id}.toml").write_text(CLAIM.format(bound=bound, quantity=quantity))


def call(*arguments):
    return CliRunner().invoke(verify, list(arguments), catch_exceptions=False)


def setup(directory, *seeds):
    return Setup(seeds=seeds or (0,), at_once=1, directory=directory / "v", log=directory / "log")


def test_claims_are_measured_once_and_a_second_call_only_looks(own_presets, tmp_path, monkeypatch):
    write(own_presets, "own-good")
    write(own_presets, "own-bad", "< 0")
    write(own_presets, "own-evaluated", quantity="validation_loss")
    arguments = (
        "own-good",
        "own-bad",
        "own-evaluated",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--presets",
        str(own_presets),
    )
    first = call(*arguments, "--json")
    assert first.exit_code == 0, first.output
    results = json.loads(first.stdout)
    assert [set(result) for result in results] == [{"id", "verdict", "measured", "spread", "bound", "seeds"}] * 3
    assert [result["verdict"] for result in results] == [HOLDS, FAILS, HOLDS]
    assert results[0]["seeds"] == [0, 1]
    assert results[0]["bound"] == "> 0"
    assert 4 < results[0]["measured"] < 8
    assert 0 < results[0]["spread"] < 2
    monkeypatch.setattr("gradtui.verify.check.run_jobs", lambda *_, **__: pytest.fail("it was measured again"))
    assert json.loads(call(*arguments, "--json").stdout) == results
    write(own_presets, "own-bad", "> 0")
    assert [r["verdict"] for r in json.loads(call(*arguments, "--json").stdout)] == [HOLDS] * 3
    lines = call(*arguments).output.splitlines()
    assert lines[0].split() == ["CLAIM", "MEASURED", "LOW", "…", "HIGH", "BOUND", "VERDICT"]
    assert lines[1].startswith("✓  own-good")
    assert "seeds 0, 1" in lines[-1]


def test_the_run_of_a_claim_is_a_run_file_with_the_same_numbers(own_presets, tmp_path):
    claim = a_claim()
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    [result] = check([claim], presets, setup(tmp_path, 3))
    [path] = (tmp_path / "v").iterdir()
    with contextlib.closing(RunReader(path)) as run:
        assert run.status == "done"
        assert run.facts["seed"] == 3
        assert result.values == (pytest.approx(run.losses()[:4].mean()),)


def test_progress_goes_from_nothing_to_all_there_is_to_do(own_presets, tmp_path):
    presets, calls = {"tiny": load_preset(own_presets / "tiny.toml")}, []
    check([a_claim()], presets, setup(tmp_path), lambda *call: calls.append(call))
    assert calls[0] == (0, 8)  # 4 steps of 2 layers
    assert calls[-1] == (8, 8)


def test_what_cannot_be_checked_is_said_and_is_a_failure_and_the_rest_is_checked(own_presets, tmp_path):
    write(own_presets, "own-good")
    (own_presets / "claims" / "own-lost.toml").write_text(
        CLAIM.format(bound="> 0", quantity="loss").replace("tiny", "x")
    )
    write(own_presets, "own-unmeasured", quantity="routed_spread")
    names = ("own-good", "own-lost", "own-unmeasured")
    arguments = (*names, "--seeds", "1", "--jobs", "1", "--presets", str(own_presets), "--language", "en")
    done = call(*arguments, "--json")
    assert done.exit_code == 1
    assert [result["verdict"] for result in json.loads(done.stdout)] == [HOLDS, None, None]
    assert "own-lost: there is no preset x" in done.stderr
    assert "own-unmeasured: the run of tiny has not measured routed_spread" in done.stderr
    assert "could not be checked" in call(*arguments).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["post-ln-colapses"], "did you mean post-ln-collapses"),
        (["post-ln-sticks", "--quick"], "there is no claim to check in the quick set"),
    ],
)
def test_a_name_that_is_none_is_a_usage_error(arguments, words):
    with pytest.raises(Failure, match=words) as failure:
        call(*arguments)
    assert failure.value.code == USAGE


def test_the_list_needs_no_experiment(monkeypatch):
    monkeypatch.setattr("gradtui.verify.check.check", lambda *_, **__: pytest.fail("it was checked"))
    listed = call("--list", "--language", "zh")
    assert listed.exit_code == 0
    assert "post-ln-collapses" in listed.output
    assert "百分之一" in listed.output
    assert len(call("--list", "--quick").output.splitlines()) < len(listed.output.splitlines())


def test_a_job_that_fails_says_why_and_the_worker_goes_on(own_presets, tmp_path):
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    claims = [
        a_claim("twin", measure={"kind": "invariant", "name": "centred_rms_twin", "preset": "tiny",
                                 "change": {"model": {"norm": "rmsnorm"}}}),
        a_claim("lost", bound="≤ 0", measure={"kind": "invariant", "name": "lost_directions", "preset": "tiny"}),
    ]  # fmt: skip
    twin, lost = check(claims, presets, setup(tmp_path))
    assert "norm = 'rmsnorm'" in twin.problem
    assert lost.values == (2.0,)


def test_a_run_that_diverges_does_not_hold_and_is_no_error(own_presets, tmp_path):
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    change = {"training": {"lr": 1e9, "optimizer": "sgd"}}
    claim = a_claim(measure={"kind": "metric", "samples": [a_sample(start=50, stop=60, change=change)]})
    [result] = check([claim], presets, setup(tmp_path))
    assert result.verdict == FAILS
    assert result.as_json()["measured"] is None
    assert not make_plan([claim], presets, [0], Store(tmp_path / "v")).jobs


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_set_says_of_the_lesson_what_its_notes_explain():
    done = call("--quick", "--json", "--jobs", str(max(1, (os.cpu_count() or 1) - 1)))
    assert done.exit_code == 0, done.stderr
    verdicts = {result["id"]: result["verdict"] for result in json.loads(done.stdout)}
    wrong = {"post-ln-compressed-at-start", "layernorm-keeps-information", "mean-is-useless-post"}
    assert {id for id, verdict in verdicts.items() if verdict == FAILS} == wrong
    assert verdicts["post-ln-collapses"] == HOLDS
    assert verdicts["pre-ln-largest-at-bottom"] == HOLDS
