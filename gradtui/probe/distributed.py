"""Data-parallel training: every process measures its own part, and one collective per step adds the parts up.

Works with DistributedDataParallel (every process holds all weights, gradients are averaged) and with FSDP2
(`fully_shard`: weights and gradients are DTensors, each process holds a shard). Squared norms are added.

Legend: R rows, S sites, W processes.
"""

from __future__ import annotations

import gc
import itertools
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from gradtui.probe.accumulator import ROWS, STREAM, STREAM_GRAD, STREAM_SUM, TRUNK, StepAccumulator
from gradtui.probe.discovery import MeasuredSite, unwrapped

# All processes reach their first step at about the same time: the backward pass has just synchronised them.
JOIN_TIMEOUT = timedelta(seconds=30)

_joins = itertools.count()


def rank() -> int:
    """The number of this process among those that train together; 0 where it trains alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


class Processes:
    """The processes that train one model. `combine` is the one collective; all must call it at the same steps."""

    def __init__(self, sites: Sequence[MeasuredSite], device: torch.device) -> None:
        self.sites, self._world = len(sites), dist.get_world_size()
        # gloo adds on the host, whatever the device of the model.
        self._device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        self._type = torch.float32 if self._device.type == "mps" else torch.float64
        factor = torch.ones(ROWS, self.sites, dtype=self._type)
        factor /= torch.tensor([_copies(measured.parameters, self._world) for measured in sites], dtype=self._type)
        factor[[STREAM, STREAM_SUM]] = 1
        # Each process has the gradient of its own mean loss; the mean of those is the loss of them all.
        factor[[STREAM_GRAD, TRUNK]] = 1 / self._world**2
        self._factor = factor.flatten().to(self._device)
        self._cells: tuple[int, ...] = ()
        self._index = torch.empty(0, dtype=torch.int64)

    def combine(self, step: StepAccumulator) -> None:
        """Add up what all processes have measured; `step.combined` then holds the sums, on every process."""
        cells = ROWS * self.sites
        if tuple(step.cells) != self._cells:
            self._cells = tuple(step.cells)
            self._index = torch.tensor(step.cells, device=self._device)
        dense = torch.zeros(2 * cells + self.sites, dtype=self._type, device=self._device)
        if self._cells:
            values = torch.stack([v.to(self._device) for v in step.values]).to(self._type)
            dense.index_add_(0, self._index, values.square() * self._factor[self._index])
            dense.index_add_(0, self._index + cells, torch.ones_like(values))
        dense[2 * cells :] = torch.tensor(step.elements, dtype=self._type).to(self._device)
        dist.all_reduce(dense)
        step.combined = dense


def join_processes(
    model: nn.Module, sites: Sequence[MeasuredSite], device: torch.device, *, is_ready: bool
) -> tuple[Processes | None, str]:
    """The processes that train `model`, if each has a probe on it; else None and, if there are any, a sentence.

    `model` is as the user has given it, perhaps wrapped. No process may wait for a collective that another one
    never calls. So each notes its probe in the store through which the processes were started, and process 0
    decides for all: against it unless `is_ready`.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None, ""
    world, me, number = dist.get_world_size(), dist.get_rank(), next(_joins)
    if not _is_data_parallel(model):
        return (
            None,
            f"{world} processes train, but not this model together: the numbers are those of process 0 alone",
        )
    store = dist.distributed_c10d._get_default_store()
    mark = str(zlib.crc32("\n".join(measured.site.name for measured in sites).encode()))
    key = f"gradtui/{number}"
    try:
        store.set(f"{key}/{me}", mark)
        if me == 0:
            store.set(f"{key}/together", str(int(is_ready and _all_alike(store, key, mark, world))))
        store.wait([f"{key}/together"], 2 * JOIN_TIMEOUT)
        together = store.get(f"{key}/together") == b"1"
    except RuntimeError:
        together = False
    if together:
        return Processes(sites, device), ""
    return None, f"not all {world} processes have a probe on this model: the numbers are those of process 0 alone"


def _all_alike(store: Any, key: str, mark: str, world: int) -> bool:
    """Whether every process has noted the same `mark` of its sites."""
    try:
        store.wait([f"{key}/{other}" for other in range(world)], JOIN_TIMEOUT)
        return all(store.get(f"{key}/{other}").decode() == mark for other in range(world))
    except RuntimeError:
        return False


def _copies(parameters: Sequence[Parameter], world: int) -> float:
    """How many of the processes hold each number of these parameters."""
    for parameter in parameters:
        mesh: Any = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            placements: Any = getattr(parameter, "placements", ())
            copies: float = world / mesh.size()
            for dimension, placement in enumerate(placements):
                if not placement.is_shard():
                    copies *= mesh.size(dimension)
            return copies
    return world


def _is_data_parallel(given: nn.Module) -> bool:
    model = unwrapped(given)
    if any(hasattr(p, "device_mesh") for p in model.parameters()):
        return True
    if isinstance(given, nn.parallel.DistributedDataParallel):
        return True
    # Made before the model was wrapped, or given the inner one.
    wrappers = (o for o in gc.get_objects() if type(o) is nn.parallel.DistributedDataParallel)
    return any(wrapper.module is model or model in set(wrapper.module.modules()) for wrapper in wrappers)
