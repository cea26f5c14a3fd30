"""Every training is done once, however many claims look at it, and what cannot be done is said before."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify.conftest import a_claim, a_sample

from gradtui.analysis.quantities import QUANTITIES
from gradtui.metrics import MEASURED, METRICS
from gradtui.presets import load_preset
from gradtui.verify.jobs import BenchmarkJob, InvariantJob, TrainingJob
from gradtui.verify.plan import changed, make_plan
from gradtui.verify.store import Store


@pytest.fixture
def presets(own_presets):
    return {"tiny": load_preset(own_presets / "tiny.toml")}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def metric(id: str = "claim", **changes):
    return a_claim(id, measure={"kind": "metric", "samples": [a_sample(**changes)]})


def test_claims_on_one_preset_share_its_run_and_the_longest_decides(presets, store):
    plan = make_plan([metric("a", stop=3), metric("b", stop=9), metric("c", stop=5)], presets, [0, 1], store)
    assert [(job.seed, job.steps) for job in plan.jobs.values()] == [(0, 9), (1, 9)]
    assert plan.keys["a"] == plan.keys["b"] == plan.keys["c"] == list(plan.jobs)


def test_a_run_that_is_evaluated_at_its_end_serves_shorter_claims_too(presets, store):
    evaluated = metric("a", quantity="validation_loss", stop=9)
    plan = make_plan([evaluated, metric("b", stop=5)], presets, [0], store)
    [job] = plan.jobs.values()
    assert (job.steps, job.evaluate) == (9, True)
    longer = make_plan([evaluated, metric("b", stop=12)], presets, [0], store)
    assert sorted((job.steps, job.evaluate) for job in longer.jobs.values()) == [(9, True), (12, False)]


def test_changed_settings_are_another_run(presets, store):
    claims = [
        metric("a"),
        metric("b", change={"model": {"layers": 3}}),
        metric("c", change={"training": {"lr": 0.5}}),
    ]
    plan = make_plan(claims, presets, [0], store)
    assert sorted((job.preset.model.layers, job.preset.training.lr) for job in plan.jobs.values()) == [
        (2, 1e-3),
        (2, 0.5),
        (3, 1e-3),
    ]
    assert all(job.preset.model.width == 8 for job in plan.jobs.values())


def test_words_of_a_preset_do_not_make_another_run_but_settings_do(presets, store):
    def keys(preset):
        return make_plan([metric()], {"tiny": preset}, [0], store).keys["claim"]

    tiny = presets["tiny"]
    assert keys(changed(tiny, {"title": "Other", "about": "Other."}, "c")) == keys(tiny)
    assert keys(changed(tiny, {"training": {"lr": 0.5}}, "c")) != keys(tiny)
    assert keys(changed(tiny, {"corpus": "stdlib"}, "c")) != keys(tiny)


def test_a_text_file_that_changes_makes_another_run(presets, store, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a" * 100)
    preset = changed(presets["tiny"], {"corpus": f"file:{text}"}, "c")
    before = make_plan([metric()], {"tiny": preset}, [0], store).keys
    text.write_text("b" * 101)
    assert make_plan([metric()], {"tiny": preset}, [0], store).keys != before


def test_a_comparison_has_two_runs_for_each_seed(presets, store):
    samples = [a_sample(), a_sample(change={"model": {"norm": "rmsnorm"}})]
    claim = a_claim(measure={"kind": "comparison", "compare": "difference", "samples": samples})
    plan = make_plan([claim], presets, [0, 1], store)
    jobs = [plan.jobs[key] for key in plan.keys["claim"]]
    assert [(job.seed, job.preset.model.norm) for job in jobs] == [
        (0, "layernorm"),
        (0, "rmsnorm"),
        (1, "layernorm"),
        (1, "rmsnorm"),
    ]


def test_invariants_and_benchmarks_are_jobs_of_their_own_until_they_are_kept(presets, store):
    claims = [
        a_claim("i", measure={"kind": "invariant", "name": "lost_directions", "preset": "tiny"}),
        a_claim("b", measure={"kind": "benchmark", "name": "norm_time", "mode": "torch", "passed": "forward"}),
    ]
    plan = make_plan(claims, presets, [0], store)
    assert [type(job) for job in plan.jobs.values()] == [BenchmarkJob, InvariantJob]
    store.keep(plan.keys["i"][0], 2.0)
    assert list(make_plan(claims, presets, [0], store).jobs) == plan.keys["b"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"preset": "tinny"}, "there is no preset tinny"),
        ({"change": {"model": {"heads": 3}}}, "claim claim: change of tiny: model.heads = 3 does not divide"),
        ({"change": {"model": {"hats": 3}}}, "model.hats is not a key"),
        ({"change": {"model": 3}}, "model = 3 is not allowed"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_left_out_with_the_reason(changes, reason, presets, store):
    plan = make_plan([metric(**changes), metric("good")], presets, [0], store)
    assert reason in plan.skipped["claim"]
    assert len(plan.jobs) == 1


def test_every_quantity_is_made_of_metrics_that_all_runs_of_presets_record():
    recorded = {name for name in MEASURED if METRICS[name].recorded in ("always", "zoo")}
    assert all(set(quantity.metrics) <= recorded for quantity in QUANTITIES.values())


def test_the_longest_job_is_begun_first(presets, store):
    claims = [metric("a", stop=3), metric("b", stop=90, change={"model": {"layers": 8}})]
    jobs = list(make_plan(claims, presets, [0], store).jobs.values())
    assert [job.steps for job in jobs if isinstance(job, TrainingJob)] == [90, 3]


def test_a_run_that_is_too_short_or_damaged_is_done_again(presets, store, make_run):
    def jobs(stop):
        plan = make_plan([metric(stop=stop)], presets, [0], store)
        return len(plan.jobs), plan.keys["claim"][0]

    _, key = jobs(3)
    make_run(ratios=[1.0] * 3).rename(store.run(key))
    assert jobs(3)[0] == 0
    assert jobs(4)[0] == 1
    Path(store.run(key)).write_bytes(b"no run file")
    assert jobs(3)[0] == 1


def test_what_diverged_is_not_done_again_and_what_was_stopped_is(presets, store, make_run):
    plan = make_plan([metric(stop=9)], presets, [0], store)
    path = store.run(plan.keys["claim"][0])
    make_run("a", ratios=[1.0] * 3, status="diverged").rename(path)
    assert not make_plan([metric(stop=9)], presets, [0], store).jobs
    path.unlink()
    make_run("b", ratios=[1.0] * 9, status="stopped").rename(path)
    assert make_plan([metric(stop=9)], presets, [0], store).jobs
