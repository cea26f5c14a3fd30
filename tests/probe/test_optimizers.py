"""Steps of one optimizer, of several, of none; clipped, scaled, left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gradtui.metrics import SITE_METRICS
from gradtui.probe.probe import Probe
from probe.conftest import Net, Recorded, batch, loss_of, norm, seeded


@pytest.mark.parametrize("how", ["clip_grad_norm_", "clip_grad_value_"])
def test_the_norm_is_the_one_before_clipping_with_the_clipped_one_beside_it(how: str, tmp_path: Path) -> None:
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_

    clip = {"clip_grad_norm_": clip_grad_norm_, "clip_grad_value_": clip_grad_value_}[how]  # long before the probe
    model, reference = seeded(Net), seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        loss_of(model, 0).backward()
        clip(model.parameters(), 1e-3)
        optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    loss_of(reference, 0).backward()
    before = norm(p.grad for p in reference.layers[1].parameters())
    clip(reference.parameters(), 1e-3)
    after = norm(p.grad for p in reference.layers[1].parameters())
    assert before > 2 * after
    assert run.value("grad_norm", "layers.1") == pytest.approx(before, rel=1e-5)
    assert run.value("clipped_norm", "layers.1") == pytest.approx(after, rel=1e-5)


def test_clipping_another_models_gradients_measures_nothing(tmp_path: Path) -> None:
    model, other = seeded(Net), seeded(Net, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        loss_of(other, 0).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        loss_of(model, 0).backward()
        optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    assert "clipped_norm" not in run.metrics
    assert (run.tables["grad_norm"][0] > 0).all()


def test_a_grad_scaler_leaves_no_scale_in_the_values_and_its_skipped_steps_are_events(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe:
        for step in range(4):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            scaler.scale(loss).backward()
            if step == 1:
                model.head.weight.grad.fill_(torch.inf)
            if step == 3:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            probe.log(loss=loss)
    run = Recorded(tmp_path / "a.gradtui")
    assert [(event.kind, event.step) for event in run.events] == [("skipped", 1)]
    assert len(run.steps) == 3
    for row, step in enumerate((0, 2, 3)):
        reference.zero_grad()
        x = reference.embedding(batch(step))
        x.retain_grad()
        y = x
        for block in reference.layers:
            y = block(y)
        loss = reference.head(y).square().mean()
        loss.backward()
        assert run.value("stream_grad", "embedding", row) == pytest.approx(norm([x.grad]), rel=1e-5)
        expected = norm(p.grad for p in reference.layers[0].parameters())
        assert run.value("grad_norm", "layers.0", row) == pytest.approx(expected, rel=1e-5)
        assert run.loss[row] == pytest.approx(loss.item(), rel=1e-5)


def test_several_optimizers_of_one_model_make_one_step(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    pair = [torch.optim.SGD(matrices, lr=0.05), torch.optim.Adam(vectors, lr=0.05)]
    with Probe(model, pair, run=tmp_path / "a.gradtui"):
        for step in range(2):
            loss_of(model, step).backward()
            for optimizer in pair:
                optimizer.step()
                optimizer.zero_grad()
    run = Recorded(tmp_path / "a.gradtui")
    loss_of(reference, 0).backward()
    assert len(run.steps) == 2
    for name in ("embedding", "layers.1", "head"):
        expected = norm(p.grad for p in dict(reference.named_modules())[name].parameters())
        assert run.value("grad_norm", name) == pytest.approx(expected, rel=1e-5)
        assert run.value("update_ratio", name) > 0


def test_what_is_frozen_for_one_optimizers_turn_is_measured_at_its_own(tmp_path: Path) -> None:
    model = seeded(Net)
    sides = [list(model.layers.parameters()), [*model.embedding.parameters(), *model.head.parameters()]]
    pair = [torch.optim.SGD(side, lr=0.05) for side in sides]
    with Probe(model, pair, run=tmp_path / "a.gradtui"):
        for step in range(2):
            for turn, optimizer in enumerate(pair):
                for side, parameters in enumerate(sides):
                    for p in parameters:
                        p.requires_grad_(side == turn)
                loss_of(model, step).backward()
                torch.nn.utils.clip_grad_norm_(sides[turn], 1e-4)
                optimizer.step()
                optimizer.zero_grad()
    run = Recorded(tmp_path / "a.gradtui")
    assert (run.tables["grad_norm"] > 1e-4).all()
    assert run.facts["frozen"] == []
    total = np.sqrt(np.square(run.tables["clipped_norm"][0]).sum())
    assert total == pytest.approx(np.sqrt(2) * 1e-4, rel=1e-2)


def test_of_several_steps_of_one_optimizer_within_a_step_the_first_counts(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    critic, actor = [*model.layers.parameters()], [*model.embedding.parameters(), *model.head.parameters()]
    pair = [torch.optim.SGD(critic, lr=0.05), torch.optim.SGD(actor, lr=0.05)]
    with Probe(model, pair, run=tmp_path / "a.gradtui"):
        for round_ in range(2):
            for turn in (0, 0, 0, 1):
                loss_of(model, round_).backward()
                pair[turn].step()
                pair[0].zero_grad()
                pair[1].zero_grad()
    run = Recorded(tmp_path / "a.gradtui")
    assert len(run.steps) == 2
    assert run.value("weight_norm", "layers.0") == pytest.approx(norm(reference.layers[0].parameters()), rel=1e-5)
    loss_of(reference, 0).backward()
    expected = norm(p.grad for p in reference.layers[0].parameters())
    assert run.value("grad_norm", "layers.0") == pytest.approx(expected, rel=1e-5)


def test_an_optimizer_whose_step_is_left_out_does_not_shift_the_others(tmp_path: Path) -> None:
    model = seeded(Net)
    sides = [[*model.layers.parameters()], [*model.embedding.parameters(), *model.head.parameters()]]
    pair = [torch.optim.SGD(side, lr=0.0) for side in sides]
    scalers = [torch.amp.GradScaler("cpu", init_scale=4.0) for _ in pair]
    with Probe(model, pair, run=tmp_path / "a.gradtui"):
        for step in range(3):
            for optimizer in pair:
                optimizer.zero_grad()
            (loss_of(model, step) * 4).backward()
            if step == 1:
                model.layers[0].inner.weight.grad.fill_(torch.inf)
            for optimizer, scaler in zip(pair, scalers, strict=True):
                scaler.scale(torch.ones(()))  # makes it know its scale
                scaler.step(optimizer)
                scaler.update()
    run = Recorded(tmp_path / "a.gradtui")
    assert len(run.steps) == 3
    assert [(e.kind, e.step) for e in run.events] == [("skipped", 1)]
    assert np.isnan(run.value("grad_norm", "layers.0", 1))
    reference = seeded(Net)
    loss_of(reference, 2).backward()
    expected = norm(p.grad for p in reference.head.parameters())
    assert run.value("grad_norm", "head", 2) == pytest.approx(expected, rel=1e-5)


def test_two_models_with_an_optimizer_each_are_two_runs(tmp_path: Path) -> None:
    generator, critic = seeded(Net), seeded(Net, 1)
    first = torch.optim.SGD(generator.parameters(), lr=0.05)
    second = torch.optim.SGD(critic.parameters(), lr=0.05)
    with (
        Probe(generator, first, run=tmp_path / "g.gradtui"),
        Probe(critic, second, run=tmp_path / "c.gradtui"),
    ):
        for step in range(3):
            for _ in range(2):
                second.zero_grad()
                fake = generator(batch(step)).detach()
                (loss_of(critic, step) - fake.square().mean()).backward()
                second.step()
            first.zero_grad()
            x = generator(batch(step))
            critic(torch.cat([x, x], -1)).mean().backward()
            first.step()
    one, two = Recorded(tmp_path / "g.gradtui"), Recorded(tmp_path / "c.gradtui")
    assert len(one.steps) == 3
    assert len(two.steps) == 6
    assert (one.tables["grad_norm"] > 0).all()
    assert np.isfinite(two.tables["stream_grad"]).all()


def test_an_optimizer_with_a_closure(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        optimizer.step(closure)
    run = Recorded(tmp_path / "a.gradtui")
    loss_of(reference, 0).backward()
    expected = norm(p.grad for p in reference.layers[0].parameters())
    assert run.value("grad_norm", "layers.0") == pytest.approx(expected, rel=1e-5)


def test_a_loop_without_an_optimizer_measures_where_step_is_called(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    with Probe(model, run=tmp_path / "a.gradtui") as probe:
        for step in range(3):
            model.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            probe.step()
            probe.log(loss=loss)
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
    run = Recorded(tmp_path / "a.gradtui")
    assert len(run.steps) == 3
    loss_of(reference, 0).backward()
    block = reference.layers[0]
    grad, weight = norm(p.grad for p in block.parameters()), norm(block.parameters())
    assert run.value("grad_norm", "layers.0") == pytest.approx(grad, rel=1e-5)
    assert run.value("update_ratio", "layers.0") == pytest.approx(0.05 * grad / weight, rel=1e-4)
    assert run.loss[0] == pytest.approx(loss_of(reference, 0).item(), rel=1e-5)


def test_every_kth_step_is_recorded_with_its_own_loss(tmp_path: Path) -> None:
    whole, sparse = {}, {}
    for every, found in ((1, whole), (3, sparse)):
        for when in ("before", "after"):
            model = seeded(Net)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            path = tmp_path / f"{every}{when}.gradtui"
            with Probe(model, optimizer, run=path, every=every, metrics=SITE_METRICS) as probe:
                for step in range(7):
                    optimizer.zero_grad()
                    loss = loss_of(model, step)
                    loss.backward()
                    if when == "before":
                        probe.log(loss=loss)
                    optimizer.step()
                    if when == "after":
                        probe.log(loss=loss)
            found[when] = Recorded(path)
    for when in ("before", "after"):
        assert list(sparse[when].steps) == [0, 3, 6]
        np.testing.assert_array_equal(sparse[when].loss, whole[when].loss[[0, 3, 6]])
        for metric in whole[when].metrics:
            np.testing.assert_array_equal(sparse[when].tables[metric], whole[when].tables[metric][[0, 3, 6]])


def test_a_learning_rate_that_a_schedule_changes_is_recorded(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(3):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    from gradtui.runs.open_run import open_run

    assert list(open_run(tmp_path / "a.gradtui").lr) == [1.0, 0.5, 0.25]
