"""Small models, ways to train them with a probe, and plain autograd to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.probe import Probe
from gradtui.runs.open_run import open_run

WIDTH = 8
Forward = Callable[[nn.Module, Tensor], Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Block(nn.Module):
    """x + W tanh(V x): a residual block of two matrices."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def branch(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.inner(x)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class Net(nn.Module):
    """Embedding, residual blocks, head; `call` says how a block is called."""

    def __init__(
        self,
        blocks: Iterable[nn.Module] | None = None,
        call: Callable[[nn.Module, Tensor], Tensor] = lambda block, x: block(x),
    ) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(blocks if blocks is not None else (Block() for _ in range(3)))
        self.head = nn.Linear(WIDTH, 2)
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block in self.layers:
            x = self.call(block, x)
        return self.head(x)


def batch(step: int, size: int = 5) -> Tensor:
    return torch.randn(size, 3, 4, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, step: int) -> Tensor:
    return model(batch(step)).square().mean()


def norm(tensors: Iterable[Tensor | None]) -> float:
    return math.sqrt(sum(float(t.detach().abs().double().square().sum()) for t in tensors if t is not None))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make()


class Recorded:
    """A finished run as metric tables by site name."""

    def __init__(self, path: Path) -> None:
        with closing(open_run(path)) as run:
            self.names = [site.name for site in run.sites]
            self.sites = run.sites
            self.metrics = run.metrics
            self.tables = {name: run.metric(name) for name in run.metrics}
            self.steps, self.loss = run.steps, run.loss
            self.events, self.facts, self.status = run.events, run.facts, run.status

    def value(self, metric: str, site: str, row: int = 0) -> float:
        return float(self.tables[metric][row, self.names.index(site)])

    def row(self, metric: str, row: int = 0) -> dict[str, float]:
        return dict(zip(self.names, map(float, self.tables[metric][row]), strict=True))


Train = Callable[..., Recorded]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Train a model for some steps with a probe on it."""

    def run(
        model: nn.Module,
        steps: int = 2,
        *,
        loss: Callable[[nn.Module, int], Tensor] = loss_of,
        optimizer: torch.optim.Optimizer | None = None,
        **options: Any,
    ) -> Recorded:
        path = tmp_path / f"run{len(list(tmp_path.iterdir()))}.gradtui"
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
        with Probe(model, optimizer, run=path, **options) as probe:
            for step in range(steps):
                optimizer.zero_grad()
                value = loss(model, step)
                value.backward()
                optimizer.step()
                probe.log(loss=value)
        return Recorded(path)

    return run


def plain(
    model: nn.Module,
    streams: Callable[[nn.Module, int], tuple[Sequence[Tensor], Tensor]],
    steps: int = 2,
    lr: float = 0.05,
) -> Iterator[dict[str, list[float]]]:
    """Per step, by autograd alone: act_rms and stream_grad of the tensors that `streams` returns with the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        tensors, loss = streams(model, step)
        grads = torch.autograd.grad(loss, tensors, retain_graph=True)
        loss.backward()
        yield {
            "act_rms": [float(t.detach().abs().double().square().mean().sqrt()) for t in tensors],
            "stream_grad": [norm([g]) for g in grads],
        }
        optimizer.step()


def agree(got: Sequence[float] | np.ndarray, expected: Sequence[float]) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-5)


POINTS = ("embedding", "layers.0", "layers.1", "layers.2")


def by_hand(model: nn.Module, step: int) -> tuple[list[Tensor], Tensor]:
    """The streams x_0 … x_3 of a `Net` whose blocks add a branch, computed without calling any block."""
    streams = [model.embedding(batch(step))]
    for block in model.layers:
        streams.append(streams[-1] + Block.branch(block, streams[-1]))  # type: ignore[arg-type]
    return streams, model.head(streams[-1]).square().mean()


def check(run: Recorded, expected: list[dict[str, list[float]]], points: tuple[str, ...] = POINTS) -> None:
    """Compare the streams of a run with what `plain` yields."""
    for row, values in enumerate(expected):
        for metric in ("act_rms", "stream_grad"):
            agree([run.value(metric, name, row) for name in points], values[metric])


def train_on(model: nn.Module, probe: Probe, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """The losses of these steps, each logged after its step."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        probe.log(loss=loss)
        losses.append(loss.item())
    return losses
