"""What is measured at some steps only: the trunk's share of the gradient, and what modules tell of themselves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from gradtui.engine.trainer import Trainer
from gradtui.i18n import Localized
from gradtui.metrics import FIRST_SAMPLED, SAMPLE_EVERY
from gradtui.presets import ModelConfig, MoEConfig, Preset, TrainingConfig
from gradtui.runs.reader import RunReader
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer


def preset(**model: object) -> Preset:
    config = ModelConfig(layers=3, width=16, heads=2, context=16, **model)  # type: ignore[arg-type]
    return Preset(title=Localized(en="x"), id="x", model=config, training=TrainingConfig(steps=100, batch=2))


def record(chosen: Preset, path: Path, steps: int) -> RunReader:
    trainer = Trainer(chosen, seed=0, device="cpu", run=path)
    for _ in range(steps):
        trainer.step()
    trainer.close("done")
    return RunReader(path)


def by_hand(chosen: Preset) -> list[float]:
    """‖gradient of a sublayer's input with its branch held fixed‖ / ‖gradient of its output‖, at step 0."""
    model = Transformer(chosen.model, 0)
    corpus = load_corpus(chosen.corpus, context=chosen.model.context, seed=0)
    tokens = corpus.batch(0, chosen.training.batch, chosen.model.context, 0)
    subs = [sub for layer in model.layers for sub in (layer.mixer, layer.feedforward)]
    outputs: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []
    for sub in subs:
        sub.register_forward_hook(lambda _m, args, out: (inputs.append(args[0]), outputs.append(out))[0])
    grads = torch.autograd.grad(model.loss(tokens), outputs)
    shares = []
    for sub, x, g in zip(subs, list(inputs), grads, strict=True):
        held = x.detach().requires_grad_()
        fixed = sub.branch.register_forward_hook(lambda _m, _a, out: out.detach())
        y = sub(held)
        fixed.remove()
        [along] = torch.autograd.grad(y, held, g)
        shares.append(float(along.norm() / g.norm()))
    return shares


@pytest.mark.parametrize("topology", ["post", "pre"])
def test_the_trunks_share_is_what_comes_back_with_the_branch_held_fixed(topology: str, tmp_path: Path) -> None:
    chosen = preset(topology=topology)
    with closing(record(chosen, tmp_path / "a.gradtui", 1)) as run:
        sublayers = [index for index, site in enumerate(run.sites) if site.kind in ("mixer", "feedforward")]
        share = run.metric("trunk_share")[0]
        np.testing.assert_allclose(share[sublayers], by_hand(chosen), rtol=1e-5)
        assert np.isnan(np.delete(share, sublayers)).all()
        if topology == "pre":
            np.testing.assert_allclose(share[sublayers], 1, rtol=1e-6)
        else:
            assert (share[sublayers] < 0.99).all()


def test_it_is_measured_at_the_first_steps_and_at_every_tenth_and_changes_nothing(tmp_path: Path) -> None:
    steps = FIRST_SAMPLED + 2 * SAMPLE_EVERY + 1
    with closing(record(preset(), tmp_path / "a.gradtui", steps)) as run:
        measured = np.flatnonzero(~np.isnan(run.metric("trunk_share")[:, 1]))
        assert list(measured) == [*range(FIRST_SAMPLED), *range(FIRST_SAMPLED, steps, SAMPLE_EVERY)]
        losses = run.losses()
    model = Transformer(preset().model, 0)
    corpus = load_corpus(preset().corpus, context=16, seed=0)
    assert losses[0] == model.loss(corpus.batch(0, 2, 16, 0)).item()


def test_what_a_module_tells_of_itself_is_in_the_run_file(tmp_path: Path) -> None:
    moe = MoEConfig(experts=8, active=2)
    chosen = preset(topology="pre", feedforward="latent_moe", moe=moe)
    with closing(record(chosen, tmp_path / "a.gradtui", 25)) as run:
        assert {"routed_rms", "latent_rms", "load"} <= set(run.reading_names)
        step, found = run.readings("routed_rms", 24) or (None, {})
        assert step == 20
        assert [run.sites[site].name for site in found] == [f"layers.{i}.feedforward" for i in range(3)]
        for low, middle, high in found.values():
            assert 0 < low < middle < high
        assert (run.readings("routed_rms", 7) or (None,))[0] == 7
        assert run.readings("nothing", 24) is None
        assert run.readings("routed_rms", -1) is None


def test_readings_of_a_bounded_run_go_with_their_frames(tmp_path: Path) -> None:
    import sqlite3

    from gradtui.metrics import SITE_METRICS
    from gradtui.runs.schema import Frame, Site
    from gradtui.runs.writer import RunWriter

    sites = [Site("a", 0, "block", 0), Site("b", 1, "block", 1)]
    values = np.ones((len(SITE_METRICS), 2), np.float32)
    with RunWriter(tmp_path / "a.gradtui", sites, {}, keep=100) as writer:
        for step in range(5000):
            writer.append(Frame(step, 0.0, 0.1, 1.0, 1.0, values))
            writer.readings(step, {"spread": {1: np.array([step], np.float32)}})
    with closing(sqlite3.connect(tmp_path / "a.gradtui")) as db:
        assert db.execute("SELECT count(*) FROM readings").fetchone()[0] < 1000
    with closing(RunReader(tmp_path / "a.gradtui")) as run:
        step, found = run.readings("spread", 4999) or (None, {})
        assert (step, found[1][0]) == (4999, 4999)
