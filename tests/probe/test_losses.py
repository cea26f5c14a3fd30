"""Losses are recorded with their step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradtui.probe.losses import LossLog, as_loss
from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from probe.conftest import Net, Recorded, loss_of, seeded, train_on


@pytest.mark.parametrize("loss", [None, "high", [1, 2], 10**400])
def test_a_loss_that_is_no_number_is_one_warning(loss: object, tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match="loss cannot"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe,
    ):
        for step in range(2):
            loss_of(model, step).backward()
            optimizer.step()
            probe.log(loss=loss)  # type: ignore[arg-type]
    assert len(Recorded(tmp_path / "a.gradtui").steps) == 2


def test_logging_more_than_a_loss_is_a_warning_and_no_error(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match="only the loss is recorded, not accuracy"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe,
    ):
        for step in range(2):
            loss_of(model, step).backward()
            optimizer.step()
            probe.log(loss=1.5, accuracy=0.5)
    assert list(Recorded(tmp_path / "a.gradtui").loss) == [1.5, 1.5]


def test_a_loss_logged_after_the_end_is_ignored(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    probe = Probe(model, optimizer, run=tmp_path / "a.gradtui")
    train_on(model, probe, optimizer, range(2))
    probe.close()
    before = list(Recorded(tmp_path / "a.gradtui").loss)
    probe.log(loss=1.0)
    probe.log(loss="high")  # type: ignore[arg-type]
    assert list(Recorded(tmp_path / "a.gradtui").loss) == before


def test_the_first_loss_decides_whether_losses_come_before_their_step() -> None:
    early, late, unknown = LossLog(None), LossLog(None), LossLog(None)
    early.note_order(completed_steps=0)
    late.note_order(completed_steps=1)
    late.note_order(completed_steps=0)
    assert (early.logs_first, late.logs_first, unknown.logs_first) == (True, False, False)


def test_losses_of_micro_batches_are_averaged_once() -> None:
    log = LossLog(True)
    for loss in (1.0, torch.tensor(2.0), as_loss(torch.tensor([2.0, 4.0]))):
        log.add(loss)
    assert log.take() == 2.0
    assert log.take() is None
    log.add(1.0)
    log.add(2.0)
    assert log.take() == 1.5
