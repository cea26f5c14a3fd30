"""From claims to results, with real workers: each thing once, and what goes wrong is told of that claim alone."""

from __future__ import annotations

import contextlib
import json
import os
import sys

import pytest
from click.testing import CliRunner
from verify.conftest import a_claim, a_sample

from gradtui.cli.verify import verify
from gradtui.errors import USAGE, Failure
from gradtui.presets import load_preset
from gradtui.runs.reader import RunReader
from gradtui.verify import runner
from gradtui.verify.bounds import FAILS, HOLDS
from gradtui.verify.check import check
from gradtui.verify.jobs import Check
from gradtui.verify.plan import make_plan
from gradtui.verify.report import Result, number, table
from gradtui.verify.runner import run_jobs
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
    [result] = check([claim], presets, seeds=[3], jobs=1, directory=tmp_path / "v", log=tmp_path / "log")
    [path] = (tmp_path / "v").iterdir()
    with contextlib.closing(RunReader(path)) as run:
        assert run.status == "done"
        assert run.facts["seed"] == 3
        assert result.values == (pytest.approx(run.losses()[:4].mean()),)


def test_what_cannot_be_checked_is_told_and_is_a_failure_and_the_rest_is_checked(own_presets, tmp_path):
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


def test_a_worker_that_dies_costs_its_own_job_only(tmp_path, monkeypatch):
    """The first line kills it; the next worker answers."""
    code = (
        "import os, pathlib, sys\n"
        f"mark = pathlib.Path({str(tmp_path / 'died')!r})\n"
        "for line in sys.stdin:\n"
        "    if not mark.exists():\n"
        "        mark.touch(); os.kill(os.getpid(), 9)\n"
        '    print(\'stray words\'); print(\'{"type": "done", "value": 2.5}\', flush=True)\n'
    )
    monkeypatch.setattr(runner, "COMMAND", [sys.executable, "-c", code])
    store, told = Store(tmp_path / "store"), []
    jobs = {name: Check("lost_directions", None, 0) for name in ("a", "b", "c")}
    failed = run_jobs(jobs, at_once=1, store=store, log=tmp_path / "log", on_progress=told.append)
    assert list(failed) == ["a"]
    assert "ended by signal 9" in failed["a"]
    assert str(tmp_path / "log") in failed["a"]
    assert (store.value("a"), store.value("b"), store.value("c")) == (None, 2.5, 2.5)
    assert sum(told) == 3 * runner.weight(jobs["a"])


def test_a_job_that_fails_says_why_and_the_worker_goes_on(own_presets, tmp_path):
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    claims = [
        a_claim("twin", measure={"kind": "invariant", "name": "centred_rms_twin", "preset": "tiny",
                                 "change": {"model": {"norm": "rmsnorm"}}}),
        a_claim("lost", bound="≤ 0", measure={"kind": "invariant", "name": "lost_directions", "preset": "tiny"}),
    ]  # fmt: skip
    twin, lost = check(claims, presets, seeds=[0], jobs=1, directory=tmp_path / "v", log=tmp_path / "log")
    assert "norm = 'rmsnorm'" in twin.problem
    assert lost.values == (2.0,)


def test_a_run_that_diverges_does_not_hold_and_is_no_error(own_presets, tmp_path):
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    change = {"training": {"lr": 1e9, "optimizer": "sgd"}}
    claim = a_claim(measure={"kind": "metric", "samples": [a_sample(start=50, stop=60, change=change)]})
    arguments = {"seeds": [0], "jobs": 1, "directory": tmp_path / "v", "log": tmp_path / "log"}
    [result] = check([claim], presets, **arguments)
    assert result.verdict == FAILS
    assert result.as_json()["measured"] is None
    assert not make_plan([claim], presets, [0], Store(tmp_path / "v")).jobs


def test_nothing_stays_behind_when_the_caller_is_interrupted(own_presets, tmp_path):
    """Ctrl+c while a worker trains: it is gone, and so is its half-made run file."""
    presets = {"tiny": load_preset(own_presets / "tiny.toml")}
    claim = a_claim(measure={"kind": "metric", "samples": [a_sample(stop=1_000_000)]})
    store = Store(tmp_path / "v")
    plan = make_plan([claim], presets, [0], store)

    def interrupt(_more):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(plan.jobs, at_once=1, store=store, log=tmp_path / "log", on_progress=interrupt)
    assert list((tmp_path / "v").iterdir()) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.2345, "1.23"), (-0.2, "-0.2"), (8.31e-4, "8.3e-4"), (1e-15, "1.0e-15"), (float("nan"), "NaN")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_table_is_aligned_in_chinese_too():
    from rich.cells import cell_len

    claims = [a_claim("short"), a_claim("a-longer-name", note="n", note_zh="补充", caveat=True)]
    results = [
        Result(claims[0], (0,), (1.0,), HOLDS),
        Result(claims[1], (0,), (2.0,), "holds with a caveat"),
        Result(a_claim("none"), (0,), problem="there is no preset x"),
    ]
    lines = list(table(results, "zh"))
    rows = [lines[0], lines[1], lines[3], lines[6]]
    starts = [
        cell_len(row[: row.index(word)]) for row, word in zip(rows, ("界限", "> 0", "> 0", "> 0"), strict=True)
    ]
    assert len(set(starts)) == 1
    assert "→ 补充" in lines[5]
    assert "→ there is no preset x" in lines[8]


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
