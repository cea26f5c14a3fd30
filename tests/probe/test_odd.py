"""What people do to models and optimizers while a probe is on them."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from probe.conftest import WIDTH, Block, Net, Recorded, Train, batch, loss_of, norm, seeded


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_whose_square_single_precision_cannot_hold_are_measured_all_the_same(
    scale: float, train: Train
) -> None:
    model = seeded(Net)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    run = train(model, loss=lambda m, s: loss_of(m, s) * scale, steps=2, optimizer=still)
    model = seeded(Net)
    (loss_of(model, 0) * scale).backward()
    block = model.layers[0]
    exact = np.sqrt(sum(float(p.grad.double().square().sum()) for p in block.parameters()))
    assert run.value("grad_norm", "layers.0") == pytest.approx(exact, rel=1e-5)
    assert (run.tables["stream_grad"][0] > 0).all()
    assert np.isfinite(run.tables["stream_grad"]).all()


@pytest.mark.parametrize("how", ["data", "in place"])
def test_weights_that_somebody_changes_between_steps_are_no_part_of_the_update(how: str, tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, reference)]

    def shrink(m: nn.Module) -> None:
        for p in m.parameters():
            if how == "data":
                p.data.mul_(0.5)
            else:
                with torch.no_grad():
                    p.mul_(0.5)

    expected = []
    with Probe(model, optimizers[0], run=tmp_path / "a.gradtui", metrics=["update_ratio"]):
        for step in range(16):
            for m, optimizer in zip((model, reference), optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(m, step).backward()
                before = [p.detach().clone() for p in m.layers[1].parameters()]
                optimizer.step()
                if m is reference:
                    moved = [a - b.detach() for a, b in zip(before, m.layers[1].parameters(), strict=True)]
                    expected.append(norm(moved) / norm(before))
                shrink(m)
            time.sleep(0.03)
    run = Recorded(tmp_path / "a.gradtui")
    # One site is looked at in each step, and what is found is known with a delay.
    rows = slice(0, None) if how == "in place" else slice(12, None)
    np.testing.assert_allclose(
        run.tables["update_ratio"][rows, run.names.index("layers.1")], expected[rows], rtol=1e-3
    )


def test_a_layer_that_is_replaced_is_measured_at_the_site_of_the_old_one(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(4):
            if step == 2:
                model.head = nn.Linear(WIDTH, 2)
                optimizer.add_param_group({"params": list(model.head.parameters())})
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        expected = norm(p.grad for p in model.head.parameters())
    run = Recorded(tmp_path / "a.gradtui")
    assert run.value("grad_norm", "head", 3) == pytest.approx(expected, rel=1e-5)
    assert run.value("act_rms", "head", 3) > 0
    assert run.facts["blind"] == []


def test_a_layer_that_is_added_is_said_not_to_be_measured(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.warns(ProbeWarning, match="extra"), Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(3):
            if step == 1:
                model.extra = nn.Linear(WIDTH, 2)
                optimizer.add_param_group({"params": list(model.extra.parameters())})
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    assert "extra.weight, extra.bias" in Recorded(tmp_path / "a.gradtui").facts["blind"][0]


def test_an_optimizer_that_no_longer_steps_is_named_and_memory_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradtui.probe.activations.MOST_VALUES", 200)
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match="has not stepped since step 1"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui") as probe,
    ):
        loss_of(model, 0).backward()
        optimizer.step()
        other = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(60):
            other.zero_grad()
            loss_of(model, step).backward()
            other.step()
        assert len(probe._meter.streams.tally.values) < 300  # type: ignore[union-attr]


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


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        return torch.stack([head(x) for head in self.heads]).mean(0)


def test_modules_side_by_side_are_no_layers(train: Train) -> None:
    run = train(seeded(Heads))
    assert {s.kind for s in run.sites} == {"module"}


def test_an_expert_without_tokens_is_no_trouble(train: Train) -> None:
    class Idle(Heads):
        def forward(self, x: Tensor) -> Tensor:
            x = self.embedding(x)
            return self.heads[0](x) + self.heads[1](x[:0]).sum()

    run = train(seeded(Idle))
    assert not run.events
    assert np.isnan(run.value("act_rms", "heads.1"))


def test_a_mask_before_the_stream_is_not_taken_for_it(train: Train) -> None:
    class Masked(Block):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ones(3), x + self.branch(x)

    run = train(seeded(lambda: Net((Masked() for _ in range(3)), lambda block, x: block(x)[1])))
    plain = train(seeded(Net))
    np.testing.assert_array_equal(run.tables["stream_grad"], plain.tables["stream_grad"])


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


def test_a_parametrised_module_is_one_site(train: Train) -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
        nn.utils.parametrizations.weight_norm(model[0])
        return model

    run = train(seeded(make))
    assert run.names == ["0", "2"]
    model = seeded(make)
    loss_of(model, 0).backward()
    assert run.value("grad_norm", "0") == pytest.approx(norm(p.grad for p in model[0].parameters()), rel=1e-5)


def test_of_several_steps_of_one_optimizer_in_a_round_the_first_counts(tmp_path: Path) -> None:
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


def test_lazy_modules_are_asked_for_a_pass_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lazy parameters: run a batch through it first"):
        Probe(nn.Sequential(nn.LazyLinear(3)), run=tmp_path / "a.gradtui")


@pytest.mark.parametrize("loss", [None, "high", [1, 2], 10**400])
def test_a_loss_that_is_no_number_is_said_once_and_training_goes_on(loss: object, tmp_path: Path) -> None:
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


def test_a_run_file_that_somebody_removes_is_said_to_be_gone(tmp_path: Path) -> None:
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


def test_what_another_models_loss_sends_through_and_zero_grad_throws_away_does_not_count(tmp_path: Path) -> None:
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
