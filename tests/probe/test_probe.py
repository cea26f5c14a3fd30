"""The life of a probe: attached, failing, closed, dropped, forked, in threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from gradtui.runs.open_run import open_run
from probe.conftest import Net, Recorded, loss_of, seeded, train_on


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_probe_can_be_detached_and_attached_again(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = Probe(model, optimizer, run=tmp_path / "a.gradtui")
    for step in range(6):
        if step == 2:
            probe.detach()
            assert hooks(model) == 0
        if step == 4:
            probe.attach()
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        probe.log(loss=loss)
    probe.close()
    run = open_run(tmp_path / "a.gradtui")
    assert len(run.steps) == 4
    assert run.status == "done"


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
def test_a_probe_left_open_is_closed_with_the_interpreter(
    end: str, status: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.gradtui"
    subprocess.run([sys.executable, "-c", SCRIPT, str(path), end], check=False, capture_output=True, timeout=60)
    run = Recorded(path)
    assert (run.status, run.facts["reason"], len(run.steps)) == (status, reason, 3)


def test_a_probe_that_is_dropped_keeps_neither_model_nor_thread(tmp_path: Path) -> None:
    def forget() -> weakref.ref[nn.Module]:
        model = seeded(Net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        Probe(model, optimizer, run=tmp_path / "a.gradtui")
        loss_of(model, 0).backward()
        optimizer.step()
        return weakref.ref(model)

    before = threading.active_count()
    model = forget()
    gc.collect()
    assert model() is None
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before
    assert Recorded(tmp_path / "a.gradtui").status == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_that_trains_leaves_the_parents_run_alone(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for step in range(3):
                    loss_of(model, step).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                code = int((tmp_path / "a.gradtui").exists() or any(m._forward_hooks for m in model.modules()))
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        loss_of(model, 0).backward()
        optimizer.step()
    assert len(Recorded(tmp_path / "a.gradtui").steps) == 1


def test_models_that_train_in_several_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            with Probe(model, optimizer, run=tmp_path / f"{number}.gradtui"):
                for step in range(60):
                    optimizer.zero_grad()
                    loss_of(model, step).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    for number in range(3):
        run = Recorded(tmp_path / f"{number}.gradtui")
        assert len(run.steps) == 60
        assert np.isfinite(run.tables["grad_norm"]).all()
