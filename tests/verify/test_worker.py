"""What a worker measures when a run has ended."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch

from gradtui.presets import load_library
from gradtui.verify.worker import HELD_OUT_BATCHES, HELD_OUT_SEED, evaluate
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer


def small(name: str):
    """A shipped preset, two layers of it; experts are few where it has any."""
    preset = load_library().get(name)
    model = msgspec.structs.replace(preset.model, layers=2, width=16, heads=2, context=8)
    if model.feedforward == "latent_moe":
        moe = msgspec.structs.replace(model.moe, experts=8, active=2, latent=8, hidden=8, shared_hidden=8)
        model = msgspec.structs.replace(model, moe=moe)
    return msgspec.structs.replace(preset, model=model)


def test_the_validation_loss_is_the_mean_over_held_out_batches():
    preset = small("pre-ln")
    model = Transformer(preset.model, 0)
    corpus = load_corpus(preset.corpus, context=8, seed=0)
    batches = [corpus.batch(index, preset.training.batch, 8, HELD_OUT_SEED) for index in range(HELD_OUT_BATCHES)]
    with torch.no_grad():
        expected = math.fsum(float(model.loss(tokens_BS)) for tokens_BS in batches) / len(batches)
    facts = evaluate(model, preset, 0)
    assert facts["validation_loss"] == pytest.approx(expected, rel=1e-6)
    assert set(facts) == {"validation_loss", "sum_angle"}


def test_the_angle_to_the_sum_of_branches_is_nothing_in_pre_and_something_in_post():
    angles = {}
    for name in ("pre-ln", "post-ln"):
        preset = small(name)
        angles[name] = evaluate(Transformer(preset.model, 0), preset, 0)["sum_angle"]
    assert angles["pre-ln"] < 1e-5
    assert angles["post-ln"] > 0.05


@pytest.mark.parametrize(("name", "cured"), [("k3-latent-moe", True), ("k3-latent-moe-no-norm", False)])
def test_the_spread_of_the_routed_sum_is_read_where_there_are_experts(name, cured):
    preset = small(name)
    facts = evaluate(Transformer(preset.model, 0), preset, 0)
    assert facts["routed_spread"] > 1.05
    if cured:
        assert facts["latent_spread"] < facts["routed_spread"]
    else:
        assert facts["latent_spread"] == facts["routed_spread"]


def test_evaluating_changes_no_weight():
    preset = small("k3-latent-moe")
    model = Transformer(preset.model, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, preset, 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
