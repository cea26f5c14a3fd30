"""Which forward and backward passes count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.accumulator import rows_for
from gradtui.probe.activations import ActivationHooks
from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from gradtui.probe.trace import HookPoint
from probe.conftest import Net, Recorded, Train, batch, by_hand, check, loss_of, norm, plain, seeded


def test_gradient_accumulation_counts_once_per_optimizer_step(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Probe(model, optimizer, run=tmp_path / "acc.gradtui") as probe:
        for step in range(2):
            optimizer.zero_grad()
            for part in batch(step, 6).chunk(3):
                loss = model(part).square().mean()
                (loss / 3).backward()
                probe.log(loss=loss)
            optimizer.step()
    run = Recorded(tmp_path / "acc.gradtui")

    def whole(model: nn.Module, step: int) -> tuple[list[Tensor], Tensor]:
        streams = [model.embedding(batch(step, 6))]
        for block in model.layers:
            streams.append(block(streams[-1]))
        return streams, model.head(streams[-1]).square().mean()

    check(run, list(plain(seeded(Net), whole)))
    assert len(run.steps) == 2
    reference = seeded(Net)
    assert run.loss[0] == pytest.approx(reference(batch(0, 6)).square().mean().item(), rel=1e-5)


def test_evaluation_between_steps_is_not_counted(train: Train) -> None:
    model = seeded(Net)

    def loss(model: nn.Module, step: int) -> Tensor:
        with torch.no_grad():
            model(batch(99) * 50)
        model.eval()
        model(batch(98) * 50)  # an evaluation without no_grad
        with torch.inference_mode():
            model(batch(97) * 50)
        model.train()
        return loss_of(model, step)

    check(train(model, loss=loss), list(plain(seeded(Net), by_hand)))


def test_a_gradient_penalty_does_not_count_as_training(train: Train) -> None:
    def with_penalty(model: nn.Module, step: int) -> Tensor:
        x = batch(step).requires_grad_()
        [grad] = torch.autograd.grad(model(x).square().mean(), x, create_graph=True)
        return loss_of(model, step) + 0 * grad.square().sum()

    run, plain = train(seeded(Net), loss=with_penalty), train(seeded(Net))
    points = [s.name for s in plain.sites if s.layer is not None]
    for name in points:
        assert run.value("act_rms", name) == pytest.approx(plain.value("act_rms", name), rel=1e-5)
        assert run.value("stream_grad", name) == pytest.approx(plain.value("stream_grad", name), rel=1e-5)


def test_gradients_of_another_models_loss_that_zero_grad_clears_do_not_count(tmp_path: Path) -> None:
    critic, reference = seeded(Net), seeded(Net)
    generator = nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.0) for m in (critic, generator)]
    with Probe(critic, optimizers[0], run=tmp_path / "a.gradtui"):
        for step in range(3):
            optimizers[0].zero_grad()
            (loss_of(critic, step) + critic(generator(batch(step)).detach()).mean()).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            critic(generator(batch(step))).mean().backward()
            optimizers[1].step()
    run = Recorded(tmp_path / "a.gradtui")
    x = [reference.embedding(batch(2)), reference.embedding(generator(batch(2)).detach())]
    for one in x:
        one.retain_grad()
    y = []
    for one in x:
        for block in reference.layers:
            one = block(one)
        y.append(reference.head(one))
    (y[0].square().mean() + y[1].mean()).backward()
    assert run.value("stream_grad", "embedding", 2) == pytest.approx(norm([x[0].grad, x[1].grad]), rel=1e-5)


def test_very_many_micro_batches_are_added_up_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for most in (10_000, 60):
        monkeypatch.setattr("gradtui.probe.activations.MOST_VALUES", most)
        model = seeded(Net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with Probe(model, optimizer, run=tmp_path / f"{most}.gradtui"):
            for part in range(30):
                loss_of(model, part).backward()
            optimizer.step()
        runs.append(Recorded(tmp_path / f"{most}.gradtui"))
    for metric in runs[0].metrics:
        np.testing.assert_allclose(runs[1].tables[metric], runs[0].tables[metric], rtol=1e-6)


def test_an_optimizer_that_no_longer_steps_is_named(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match="has not stepped since step 1"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui"),
    ):
        loss_of(model, 0).backward()
        optimizer.step()
        other = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(60):
            other.zero_grad()
            loss_of(model, step).backward()
            other.step()


def test_memory_stays_bounded_where_no_step_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.activations.MOST_VALUES", 200)
    model = seeded(Net)
    hooks = ActivationHooks([HookPoint(block) for block in model.layers], rows_for(["act_rms", "stream_grad"]))
    hooks.attach()
    for step in range(60):
        loss_of(model, step).backward()
        assert len(hooks.accumulator.values) <= 200
