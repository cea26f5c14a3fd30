"""What cannot be seen is said; what goes wrong is named; the training is never the one to suffer."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from gradtui.runs import RunError
from probe.conftest import WIDTH, Block, Net, Recorded, Train, batch, loss_of, norm, seeded


@pytest.mark.parametrize("when", ["before attaching", "after attaching"])
@pytest.mark.parametrize("how", ["blocks replaced", "blocks in place"])
def test_compiled_blocks_give_full_numbers(how: str, when: str, tmp_path: Path) -> None:
    def compile_blocks(model: nn.Module) -> None:
        for index, block in enumerate(model.layers):
            if how == "blocks in place":
                block.compile(backend="aot_eager", fullgraph=True)
            else:
                model.layers[index] = torch.compile(block, backend="aot_eager", fullgraph=True)

    model = seeded(Net)
    if when == "before attaching":
        compile_blocks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProbeWarning)
        with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
            for step in range(4):
                if step == 1 and when == "after attaching":
                    compile_blocks(model)
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    assert run.names == ["embedding", "layers.0", "layers.1", "layers.2", "head"]
    plain = seeded(Net)
    x = plain.embedding(batch(3))
    x.retain_grad()
    y = x
    for block in plain.layers:
        y = block(y)
    plain.head(y).square().mean().backward()
    assert run.value("grad_norm", "layers.1", 3) == pytest.approx(
        norm(p.grad for p in plain.layers[1].parameters()), rel=1e-5
    )
    assert run.value("stream_grad", "embedding", 3) == pytest.approx(norm([x.grad]), rel=1e-5)
    assert (run.tables["stream_grad"][3] > 0).all()
    assert run.facts["blind"] == []


@pytest.mark.parametrize("when", ["before attaching", "after attaching"])
def test_a_model_compiled_whole_gives_its_weights_and_a_sentence_about_the_rest(when: str, tmp_path: Path) -> None:
    model = seeded(Net)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    given = compiled if when == "before attaching" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match=r"cannot be seen.*hook"),
        Probe(given, optimizer, run=tmp_path / "a.gradtui"),
    ):
        for step in range(5):
            optimizer.zero_grad()
            loss_of(compiled, step).backward()
            optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    plain = seeded(Net)
    last = int(run.steps[-1])
    loss_of(plain, last).backward()
    expected = norm(p.grad for p in plain.layers[1].parameters())
    assert run.value("grad_norm", "layers.1", -1) == pytest.approx(expected, rel=1e-5)
    assert [s.layer for s in run.sites] == [None, 0, 1, 2, None]
    [sentence] = run.facts["blind"]
    assert "activations and stream gradients of all 5 sites cannot be seen" in sentence


def test_a_model_inside_torch_func_is_named_as_out_of_sight(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().mean()

    with (
        pytest.warns(ProbeWarning, match=r"torch\.func"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui"),
    ):
        for step in range(5):
            torch.func.grad(loss)(parameters, batch(step))
            torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch(step))
            optimizer.step()
    assert any("torch.func" in sentence for sentence in Recorded(tmp_path / "a.gradtui").facts["blind"])


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


def test_an_exception_in_the_loop_passes_through_and_closes_the_run_as_failed(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    class Boom(Exception):
        pass

    with pytest.raises(Boom), Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        loss_of(model, 0).backward()
        optimizer.step()
        raise Boom("the loader is empty\nsecond line")
    run = Recorded(tmp_path / "a.gradtui")
    assert (run.status, run.facts["reason"]) == ("failed", "Boom: the loader is empty")
    assert len(run.steps) == 1


def test_a_run_file_that_is_there_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.gradtui").write_bytes(b"mine")
    with pytest.raises(RunError, match="already exists"):
        Probe(seeded(Net), run=tmp_path / "a.gradtui")
    assert (tmp_path / "a.gradtui").read_bytes() == b"mine"


def train_on(model: nn.Module, probe: Probe, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        probe.log(loss=loss)
        losses.append(loss.item())
    return losses


def test_a_locked_run_file_warns_once_and_loses_nothing(tmp_path: Path) -> None:
    import time

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
    with Probe(reference, torch.optim.SGD(reference.parameters(), lr=0.1), run=tmp_path / "b.gradtui") as other:
        assert train_on(reference, other, other._optimizers[0], range(6)) == losses


def test_a_failure_of_the_probe_itself_is_one_warning_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradtui.probe.meter import Meter

    def broken(*_args: object) -> None:
        raise RuntimeError("the meter is broken")

    monkeypatch.setattr(Meter, "after_step", broken)
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.warns(ProbeWarning, match="the meter is broken; training goes on without it") as caught,
        Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe,
    ):
        assert len(train_on(model, probe, optimizer, range(4))) == 4
    assert len(caught) == 1
    assert not any(m._forward_hooks for m in model.modules())


def test_warnings_made_errors_do_not_end_the_training(tmp_path: Path) -> None:
    model = seeded(Net)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProbeWarning)
        with Probe(compiled, optimizer, run=tmp_path / "a.gradtui") as probe:
            assert len(train_on(compiled, probe, optimizer, range(4))) == 4


SCRIPT = """
import sys, torch, gradtui
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
probe = gradtui.Probe(model, optimizer, run=sys.argv[1])
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    probe.log(loss=loss)
if sys.argv[2] == "raise":
    raise ValueError("no more data")
"""


@pytest.mark.parametrize(
    ("end", "status", "reason"), [("", "done", ""), ("raise", "failed", "ValueError: no more data")]
)
def test_a_probe_that_nobody_closes_is_closed_with_the_interpreter(
    end: str, status: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.gradtui"
    subprocess.run([sys.executable, "-c", SCRIPT, str(path), end], check=False, capture_output=True, timeout=60)
    run = Recorded(path)
    assert (run.status, run.facts["reason"], len(run.steps)) == (status, reason, 3)


def test_weights_too_many_to_be_copied_are_said_to_be_left_out(
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
    assert WIDTH == 8
    assert isinstance(model.layers[0], Block)
