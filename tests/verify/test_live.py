"""A preset's claims beside its chart: marked as soon as the run decides them, never before."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from verify.conftest import a_claim, a_sample

from gradtui.metrics import SITE_METRICS
from gradtui.presets import flatten, load_library
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Event, Frame, Site
from gradtui.runs.writer import RunWriter
from gradtui.verify.claims import load_claims
from gradtui.verify.live import claims_of, marks

POST = load_library().presets["post-ln"]


def metric(bound: str, id: str = "claim", **changes):
    sample = a_sample(**({"preset": "post-ln"} | changes))
    return a_claim(id, bound=bound, measure={"kind": "metric", "samples": [sample]})


def marked(path, *claims, before=()):
    with contextlib.closing(RunReader(path)) as run:
        return marks(run, claims, before)


def test_a_claim_is_open_until_its_last_step_and_then_decided(make_run):
    claim = metric("< 3.5", stop=4)
    [early] = marked(make_run("a", ratios=[1.0] * 3, losses=[4, 3, 3], status="running"), claim)
    assert (early.mark, early.final) == ("not yet", False)
    assert early.value == pytest.approx(10 / 3)
    [good] = marked(make_run("b", ratios=[1.0] * 4, losses=[4, 3, 3, 3], status="running"), claim)
    assert (good.mark, good.final) == ("holds", True)
    [bad] = marked(make_run("c", ratios=[1.0] * 4, losses=[4, 4, 4, 3], status="running"), claim)
    assert (bad.mark, bad.final) == ("does not hold", True)


def test_a_run_without_a_step_is_not_yet(make_run):
    [mark] = marked(make_run(ratios=[], status="running"), metric("> 1"))
    assert (mark.mark, mark.final) == ("not yet", False)
    assert math.isnan(mark.value)


def test_an_extreme_decides_early_where_nothing_can_change_it(make_run):
    path = make_run(ratios=[1.0, 0.1], status="running")
    [fallen] = marked(path, metric("> 0.5", quantity="flow_ratio", take="min", stop=100))
    assert (fallen.mark, fallen.final) == ("does not hold", True)
    [standing] = marked(path, metric("> 0.05", quantity="flow_ratio", take="min", stop=100))
    assert (standing.mark, standing.final) == ("not yet", False)


def test_a_comparison_within_one_run_waits_for_both_parts(make_run):
    samples = [a_sample(preset="post-ln", start=0, stop=1), a_sample(preset="post-ln", start=2, stop=3)]
    claim = a_claim(bound="> 1", measure={"kind": "comparison", "compare": "difference", "samples": samples})
    assert marked(make_run("a", ratios=[1.0] * 2, losses=[5, 4], status="running"), claim)[0].mark == "not yet"
    [mark] = marked(make_run("b", ratios=[1.0] * 3, losses=[5, 4, 3], status="running"), claim)
    assert (mark.mark, mark.value) == ("holds", 2)


def test_a_run_that_diverged_before_the_end_does_not_hold(make_run):
    path = make_run(ratios=[1.0] * 2, losses=[4, math.nan], status="diverged")
    assert marked(path, metric("< 9", stop=50))[0].mark == "does not hold"


def test_what_is_decided_stays_and_is_not_read_again(make_run, monkeypatch):
    claim = metric("> 1", stop=2)
    path = make_run(ratios=[1.0] * 3)
    before = marked(path, claim)
    monkeypatch.setattr("gradtui.verify.live.read_series", lambda *_: pytest.fail("it was read again"))
    assert marked(path, claim, before=before) == before


def test_from_a_changed_learning_rate_on_the_run_is_another_experiment(make_run):
    path = make_run(ratios=[1.0] * 4, events=[Event(2, "lr", value=0.5)], status="running")
    early, late = marked(path, metric("> 1", "early", stop=2), metric("> 1", "late", stop=4))
    assert (early.mark, early.final) == ("holds", True)
    assert (late.mark, late.final) == ("not yet", False)


def test_a_metric_that_the_run_does_not_record_leaves_the_claim_open(make_run):
    [mark] = marked(make_run(ratios=[1.0] * 4), metric("> 1", quantity="trunk_share"))
    assert mark.mark == "not yet"


def test_only_claims_that_this_run_alone_can_decide_are_its_own():
    facts = {"preset": flatten(POST)}
    own = [claim.id for claim in claims_of(POST, load_claims().claims.values(), facts)]
    assert "post-ln-collapses" in own
    assert not {"pre-ln-learns", "warmup-rescues-18-layers", "rmsnorm-same-loss", "post-ln-trunk-share"} & set(own)


def test_a_run_of_the_same_name_with_other_settings_has_no_claims():
    other = flatten(POST)
    other["model"]["layers"] = 3
    claims = load_claims().claims.values()
    assert claims_of(POST, claims, {"preset": other}) == []
    assert claims_of(POST, claims, {}) == []
    assert claims_of(POST, claims, {"preset": {"title": 3}}) == []


def test_a_claim_about_what_a_preset_tells_of_itself_is_marked_as_it_goes(tmp_path):
    library = load_library().presets
    claims = [claim for claim in load_claims().claims.values() if claim.id == "k3-scale-spreads"]
    preset = library["k3-latent-moe-no-norm"]
    path = tmp_path / "a.gradtui"
    sites = [Site("a", 0, "feedforward", 0), Site("b", 1, "feedforward", 1)]
    facts = {"name": preset.id, "preset": flatten(preset), "seed": 0}
    with RunWriter(path, sites, facts) as writer:
        for step, high in enumerate((1.1, 1.2, 2.0)):
            values = np.ones((len(SITE_METRICS), 2), np.float32)
            writer.append(Frame(step, 0.0, 0.1, 3.0, 1e-3, values))
            writer.readings(step, {"routed_rms": {1: np.array([1.0, 1.05, high], np.float32)}})
    with contextlib.closing(RunReader(path)) as run:
        [claim] = claims_of(preset, claims, run.facts)
        [marked] = marks(run, [claim])
        assert (marked.mark, marked.value, marked.final) == ("holds", 2.0, False)
