"""Gradients, weights and updates of parameters of every kind."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.analysis.flow import Gauge
from gradtui.probe.probe import Probe
from probe.conftest import WIDTH, Block, Net, Recorded, Train, batch, loss_of, norm, seeded


def test_gradients_weights_and_updates_equal_plain_autograd(train: Train) -> None:
    run = train(seeded(Net), steps=3)
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    modules = dict(model.named_modules())
    for row in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, row)
        loss.backward()
        assert run.loss[row] == pytest.approx(loss.item(), rel=1e-6)
        before = {name: [p.detach().clone() for p in modules[name].parameters()] for name in run.names}
        grads = {name: norm(p.grad for p in modules[name].parameters()) for name in run.names}
        optimizer.step()
        for name in run.names:
            moved = [b - p.detach() for b, p in zip(before[name], modules[name].parameters(), strict=True)]
            assert run.value("grad_norm", name, row) == pytest.approx(grads[name], rel=1e-5)
            assert run.value("weight_norm", name, row) == pytest.approx(norm(before[name]), rel=1e-5)
            ratio = norm(moved) / norm(before[name])
            assert run.value("update_ratio", name, row) == pytest.approx(ratio, rel=1e-4)


def test_tied_weights_are_one_row(train: Train) -> None:
    def make() -> nn.Module:
        model = Net()
        model.head = nn.Linear(WIDTH, WIDTH, bias=False)
        model.again = nn.Linear(WIDTH, WIDTH, bias=False)
        model.again.weight = model.head.weight
        model.head.register_forward_hook(lambda module, args, out: model.again(out))
        return model

    run = train(seeded(make), steps=1)
    model = seeded(make)
    loss_of(model, 0).backward()
    assert run.value("grad_norm", "head") == pytest.approx(norm([model.head.weight.grad]), rel=1e-5)
    assert np.isnan(run.value("grad_norm", "again"))
    assert run.value("act_rms", "again") > 0


def verdict(run: Recorded, row: int = 0) -> str:
    values = np.stack([run.tables[name][row] for name in run.metrics])
    return Gauge.of(run.sites, run.metrics).read(values).state


def test_frozen_unused_and_cut_off_layers_have_no_gradient_and_are_not_called_vanished(train: Train) -> None:
    def make() -> nn.Module:
        model = Net([Block() for _ in range(6)])
        model.embedding.requires_grad_(False)
        model.layers[0].requires_grad_(False)
        model.layers[1].requires_grad_(False)
        model.spare = nn.Linear(3, 3)
        return model

    run = train(seeded(make))
    for site in ("embedding", "layers.0", "layers.1", "spare"):
        for metric in ("grad_norm", "stream_grad"):
            assert np.isnan(run.value(metric, site))
    assert run.value("act_rms", "layers.0") > 0  # a frozen layer still has activations
    assert np.isnan(run.value("act_rms", "spare"))
    assert run.value("update_ratio", "spare") == 0  # it could move, and did not
    assert run.facts["frozen"] == ["embedding", "layers.0", "layers.1"]
    assert verdict(run) == "healthy"
    assert not run.events


def test_a_gradient_of_exactly_zero_is_zero_and_not_vanished(train: Train) -> None:
    def loss(model: nn.Module, step: int) -> Tensor:
        x = model.embedding(batch(step))
        x = model.layers[0](x) * 0
        for block in (model.layers[1], model.layers[2]):
            x = block(x)
        return model.head(x).square().mean()

    run = train(seeded(Net), loss=loss)
    assert run.value("grad_norm", "layers.0") == 0
    assert run.value("stream_grad", "embedding") == 0
    assert verdict(run) == "healthy"
    assert not run.events


def test_sparse_gradients(train: Train) -> None:
    def make() -> nn.Module:
        model = nn.Module()
        model.embedding = nn.Embedding(10, WIDTH, sparse=True)
        model.layers = nn.ModuleList(Block() for _ in range(2))
        return model

    def loss(model: nn.Module, step: int) -> Tensor:
        x = model.embedding(torch.tensor([[1, 2, 2], [1, 5, 9]]))
        for block in model.layers:
            x = block(x)
        return x.square().mean()

    run = train(seeded(make), loss=loss)
    model = seeded(make)
    loss(model, 0).backward()
    assert run.value("grad_norm", "embedding") == pytest.approx(
        norm([model.embedding.weight.grad.to_dense()]), rel=1e-5
    )
    assert run.value("update_ratio", "embedding") > 0


class Phase(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(WIDTH, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.fft.ifft(torch.fft.fft(x) * self.turn).real * self.scale


def test_complex_parameters(train: Train) -> None:
    def make() -> nn.Module:
        return Net([Phase() for _ in range(2)])

    run = train(seeded(make))
    model = seeded(make)
    loss_of(model, 0).backward()
    block = model.layers[0]
    assert run.value("grad_norm", "layers.0") == pytest.approx(norm([block.turn.grad, block.scale.grad]), rel=1e-5)
    assert run.value("weight_norm", "layers.0") == pytest.approx(norm([block.turn, block.scale]), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype: torch.dtype, train: Train) -> None:
    def loss(model: nn.Module, step: int) -> Tensor:
        return (model(batch(step).to(dtype) * 300) * 1e2).float().abs().sum()

    def make() -> nn.Module:
        return Net().to(dtype)

    run = train(seeded(make), loss=loss, optimizer=torch.optim.SGD((model := seeded(make)).parameters(), lr=0))
    del model
    reference = seeded(make)
    loss(reference, 0).backward()
    expected = norm(p.grad for p in reference.layers[2].parameters())
    assert expected > 1e4  # its square is far beyond what float16 can hold
    assert run.value("grad_norm", "layers.2") == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(run.tables["act_rms"]).all()
    assert np.isfinite(run.tables["stream_grad"]).all()


def test_parameters_that_are_no_floats_are_skipped_by_name(train: Train) -> None:
    class Quantised(Block):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)

    run = train(seeded(lambda: Net([Quantised() for _ in range(2)])))
    assert run.facts["skipped"] == ["layers.0.table", "layers.1.table"]
    assert run.value("weight_norm", "layers.0") > 0


@pytest.mark.parametrize("metrics", [None, ["update_ratio", "weight_norm"]])
def test_updates_are_measured_at_the_first_steps_and_every_tenth_unless_they_are_asked_for(
    metrics: list[str] | None, train: Train
) -> None:
    steps = 41
    run = train(seeded(Net), steps=steps, metrics=metrics)
    measured = np.flatnonzero(~np.isnan(run.tables["update_ratio"][:, 1]))
    assert list(measured) == (list(range(steps)) if metrics else [*range(5), 10, 20, 30, 40])
    assert run.facts["closely"] == ([] if metrics else ["update_ratio", "weight_norm"])
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(31):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = [p.detach().clone() for p in model.layers[0].parameters()]
        optimizer.step()
    moved = [a - b.detach() for a, b in zip(before, model.layers[0].parameters(), strict=True)]
    assert run.value("update_ratio", "layers.0", 30) == pytest.approx(norm(moved) / norm(before), rel=1e-3)
    assert run.value("weight_norm", "layers.0", 30) == pytest.approx(norm(before), rel=1e-4)


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
def test_weights_changed_between_steps_are_no_part_of_the_update(how: str, tmp_path: Path) -> None:
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
