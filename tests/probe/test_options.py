"""Arguments that make no sense are refused, and what is left out by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from gradtui.runs import RunError
from probe.conftest import Net, Recorded, seeded, train_on


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"metrics": ["grads"]}, ValueError, "there is no 'grads'; there are: stream_grad, grad_norm"),
        ({"metrics": []}, ValueError, "metrics is empty"),
        ({"every": 0}, ValueError, "every must be a whole number of steps"),
        ({"every": 1.5}, ValueError, "every must be a whole number of steps"),
        ({"optimizer": "adam"}, TypeError, "optimizer must be a torch.optim.Optimizer"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    options: dict[str, object], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        Probe(seeded(Net), run=tmp_path / "a.gradtui", **options)  # type: ignore[arg-type]


def test_lazy_modules_are_asked_for_a_pass_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lazy parameters: run a batch through it first"):
        Probe(nn.Sequential(nn.LazyLinear(3)), run=tmp_path / "a.gradtui")


def test_a_run_file_that_exists_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.gradtui").write_bytes(b"mine")
    with pytest.raises(RunError, match="already exists"):
        Probe(seeded(Net), run=tmp_path / "a.gradtui")
    assert (tmp_path / "a.gradtui").read_bytes() == b"mine"


def test_of_very_many_weights_the_updates_are_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradtui.probe.options.UPDATE_ELEMENTS", 100)
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.warns(ProbeWarning, match="updates are not measured"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe,
    ):
        train_on(model, probe, optimizer, range(2))
    run = Recorded(tmp_path / "a.gradtui")
    assert "update_ratio" not in run.metrics
    assert run.value("weight_norm", "layers.0") > 0
