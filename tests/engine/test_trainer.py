"""A trainer's frames and alarms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gradtui.engine.trainer import Trainer
from gradtui.i18n import Localized
from gradtui.metrics import SITE_METRICS
from gradtui.presets import ModelConfig, Preset, TrainingConfig
from gradtui.runs.reader import RunReader


def test_a_poisoned_weight_is_seen_at_its_own_site_and_step(tmp_path: Path) -> None:
    preset = Preset(
        title=Localized(en="x"),
        id="x",
        model=ModelConfig(layers=4, width=16, heads=2, context=16),
        training=TrainingConfig(steps=10, batch=2),
    )
    trainer = Trainer(preset, seed=0, device="cpu", run=tmp_path / "a.gradtui")
    for _ in range(3):
        trainer.step()
    with torch.no_grad():
        trainer.model.layers[2].feedforward.branch.get_parameter("up.weight")[0, 0] = float("nan")
    [frame] = trainer.step()
    trainer.close("done")
    alarm, after = [event for event in RunReader(tmp_path / "a.gradtui").events() if event.kind == "nonfinite"]
    assert frame.step == 3
    assert alarm.step == 3
    names = [site.name for site in RunReader(tmp_path / "a.gradtui").sites]
    assert alarm.site is not None
    assert names[alarm.site] == "layers.2.feedforward"
    assert alarm.text == "forward"
    assert (after.step, after.text, names[after.site or 0]) == (3, "backward", "head")


def test_a_gradient_norm_is_the_one_before_clipping(tmp_path: Path) -> None:
    norms = []
    for clip in (0.0, 1e-3):
        preset = Preset(
            title=Localized(en="x"),
            id="x",
            model=ModelConfig(layers=2, width=16, heads=2, context=16),
            training=TrainingConfig(steps=10, batch=2, clip=clip),
        )
        trainer = Trainer(preset, seed=0, device="cpu", run=tmp_path / f"{clip}.gradtui")
        [frame] = trainer.step()
        norms.append(frame.values[SITE_METRICS.index("grad_norm")])
        trainer.close("done")
    np.testing.assert_array_equal(norms[0], norms[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_values_arrive_one_step_late_and_are_the_same(tmp_path: Path) -> None:
    preset = Preset(
        title=Localized(en="x"),
        id="x",
        model=ModelConfig(layers=3, width=32, heads=2, context=16),
        training=TrainingConfig(steps=10, batch=2),
    )
    frames = {}
    for device in ("cpu", "cuda"):
        trainer = Trainer(preset, seed=0, device=device, run=tmp_path / f"{device}.gradtui")
        got = [frame for _ in range(4) for frame in trainer.step()]
        got += trainer.rest("paused")
        frames[device] = got
        trainer.close("done")
    assert [f.step for f in frames["cuda"]] == [f.step for f in frames["cpu"]] == [0, 1, 2, 3]
    np.testing.assert_allclose(frames["cuda"][0].values, frames["cpu"][0].values, rtol=1e-3, atol=1e-6)
