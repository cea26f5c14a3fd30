"""Run by torchrun in two processes: trains the same small model data-parallel, in the way named, with a probe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gradtui
from gradtui.probe import distributed
from gradtui.probe.meter import Meter

WIDTH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(torch.tanh(self.inner(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block in self.layers:
            x = block(x)
        return self.head(x)


def whole_batch(step: int) -> Tensor:
    return torch.randn(8, 3, 4, generator=torch.Generator().manual_seed(step))


def make() -> Net:
    torch.manual_seed(0)
    return Net()


@contextmanager
def broken_meter() -> Iterator[None]:
    """Every probe of this process fails when it reads gradients."""

    def fail(*_args: object) -> None:
        raise RuntimeError("the meter is broken")

    works, Meter.read_gradients = Meter.read_gradients, fail
    yield
    Meter.read_gradients = works


def train(kind: str, path: str, steps: int = 3) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    model: nn.Module = make()
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model.layers:
            fully_shard(block)
        fully_shard(model)
    elif kind != "alone":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if kind == "only rank 0":
        distributed.JOIN_TIMEOUT = timedelta(seconds=2)  # no other process joins
    if kind == "only rank 0" and rank != 0:
        probe = None
    else:
        given = model.module if kind == "ddp, inner model" else model
        probe = gradtui.Probe(given, optimizer, run=path)
    collectives = 0
    reduce = dist.all_reduce

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal collectives
        collectives += 1
        return reduce(*args, **kwargs)

    dist.all_reduce = counted
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(whole_batch(step).chunk(world)[rank]).square().mean()
        loss.backward()
        with broken_meter() if kind == "broken on rank 1" and rank == 1 and step == 1 else nullcontext():
            optimizer.step()
        if probe is not None and (rank == 0 or kind != "only rank 0 logs"):
            probe.log(loss=loss)
    if probe is not None:
        probe.close()
    dist.all_reduce = reduce
    if rank == 0:
        print(f"{kind}: {collectives} collectives in {steps} steps", flush=True)
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for argument in sys.argv[1:]:
        kind, _, path = argument.partition("=")
        train(kind, path)
    dist.destroy_process_group()
