"""The run file: its alarms, and what goes wrong with it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from probe.conftest import Net, Recorded, Train, batch, loss_of, seeded, train_on


def test_a_nan_is_named_at_its_first_step_and_site_in_both_directions(train: Train) -> None:
    def loss(model: nn.Module, step: int) -> Tensor:
        x = model.embedding(batch(step))
        for index, block in enumerate(model.layers):
            x = block(x)
            if step == 3 and index == 1:
                block.inner.weight.data[0, 0] = torch.nan
                x = block(x)
                block.inner.weight.data[0, 0] = 0.1
        return model.head(x).square().mean()

    run = train(seeded(Net), steps=6, loss=loss, optimizer=None)
    trouble = [(e.step, run.names[e.site], e.text) for e in run.events if e.kind == "nonfinite"]
    assert trouble == [(3, "layers.1", "forward"), (3, "head", "backward")]
    assert np.isfinite(run.tables["act_rms"][2]).all()


def test_a_poisoned_gradient_is_shown_at_its_layer_and_step_and_no_other(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if step == 2:
                model.layers[1].out.bias.grad[3] = torch.inf
            optimizer.step()
            if step == 2:
                model.load_state_dict(seeded(Net).state_dict())
    run = Recorded(tmp_path / "a.gradtui")
    bad = np.argwhere(~np.isfinite(run.tables["grad_norm"]))
    assert [(int(step), run.names[site]) for step, site in bad] == [(2, "layers.1")]
    assert np.isinf(run.value("grad_norm", "layers.1", 2))
    assert [(e.kind, e.step, run.names[e.site], e.text) for e in run.events] == [
        ("nonfinite", 2, "layers.1", "backward")
    ]


def test_a_locked_run_file_warns_once_and_loses_nothing(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(ProbeWarning) as caught, Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe:
        losses = train_on(model, probe, optimizer, range(2))
        time.sleep(0.5)
        lock = sqlite3.connect(tmp_path / "a.gradtui", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        for step in range(2, 6):
            losses += train_on(model, probe, optimizer, range(step, step + 1))
            time.sleep(0.3)
        lock.execute("ROLLBACK")
        lock.close()
    assert len(caught) == 1
    assert "locked" in str(caught[0].message)
    assert "training goes on" in str(caught[0].message)
    run = Recorded(tmp_path / "a.gradtui")
    assert list(run.steps) == list(range(6))
    assert run.loss == pytest.approx(losses)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    with Probe(reference, optimizer, run=tmp_path / "b.gradtui") as probe:
        assert train_on(reference, probe, optimizer, range(6)) == losses


def test_a_removed_run_file_is_one_warning(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.warns(ProbeWarning, match="was removed"), Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(12):
            loss_of(model, step).backward()
            optimizer.step()
            if step == 4:
                time.sleep(0.6)
                (tmp_path / "a.gradtui").unlink()
            time.sleep(0.1)
