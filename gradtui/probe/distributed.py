"""Data-parallel training: every process measures its own part, one collective per step adds the parts up.

Works with DistributedDataParallel (every process holds all weights, gradients are averaged) and with FSDP2
(`fully_shard`: weights and gradients are DTensors, each process holds a shard). Squares of norms are added.

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
from gradtui.probe.discovery import MeasuredSite

# All processes come to their first step together: backward has just brought them together.
MEETING = timedelta(seconds=30)

_meetings = itertools.count()


def rank() -> int:
    """The number of this process among those that train together; 0 where it trains alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


class Ranks:
    """The processes that train one model. `combine` is the one collective; all must call it at the same steps."""

    def __init__(self, places: Sequence[MeasuredSite], device: torch.device) -> None:
        self.sites, self._world = len(places), dist.get_world_size()
        # gloo adds on the host, whatever the device of the model.
        self._device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        self._type = torch.float32 if self._device.type == "mps" else torch.float64
        factor = torch.ones(ROWS, self.sites, dtype=self._type)
        factor /= torch.tensor([_replicas(place.parameters, self._world) for place in places], dtype=self._type)
        factor[[STREAM, STREAM_SUM]] = 1
        # Each process has the gradient of its own mean loss; the mean of those is the loss of them all.
        factor[[STREAM_GRAD, TRUNK]] = 1 / self._world**2
        self._factor = factor.flatten().to(self._device)
        self._places: tuple[int, ...] = ()
        self._index = torch.empty(0, dtype=torch.int64)

    def combine(self, tally: StepAccumulator) -> None:
        """Add up what all processes have measured; the tally then holds the sums, on every process."""
        cells = ROWS * self.sites
        if tuple(tally.places) != self._places:
            self._places = tuple(tally.places)
            self._index = torch.tensor(tally.places, device=self._device)
        dense = torch.zeros(2 * cells + self.sites, dtype=self._type, device=self._device)
        if self._places:
            values = torch.stack([v.to(self._device) for v in tally.values]).to(self._type)
            dense.index_add_(0, self._index, values.square() * self._factor[self._index])
            dense.index_add_(0, self._index + cells, torch.ones_like(values))
        dense[2 * cells :] = torch.tensor(tally.elements, dtype=self._type).to(self._device)
        dist.all_reduce(dense)
        tally.combined = dense


def meet(
    model: nn.Module, wrapped: nn.Module, places: Sequence[MeasuredSite], device: torch.device, *, ready: bool
) -> tuple[Ranks | None, str]:
    """The other processes, if they train this model too and each has a probe on it; and what is to be said of it.

    Nobody waits for a collective that another process never comes to: whether all have a probe is asked in the
    store that brought the processes together, and the first of them decides for all; it says no unless `ready`.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None, ""
    world, me, number = dist.get_world_size(), dist.get_rank(), next(_meetings)
    if not _is_data_parallel(model, wrapped):
        return (
            None,
            f"{world} processes train, but not this model together: the numbers are those of process 0 alone",
        )
    store = dist.distributed_c10d._get_default_store()
    mark = str(zlib.crc32("\n".join(place.site.name for place in places).encode()))
    key = f"gradtui/{number}"
    try:
        store.set(f"{key}/{me}", mark)
        if me == 0:
            store.set(f"{key}/together", str(int(ready and _all_alike(store, key, mark, world))))
        store.wait([f"{key}/together"], 2 * MEETING)
        together = store.get(f"{key}/together") == b"1"
    except RuntimeError:
        together = False
    if together:
        return Ranks(places, device), ""
    return None, f"not all {world} processes have a probe on this model: the numbers are those of process 0 alone"


def _all_alike(store: Any, key: str, mark: str, world: int) -> bool:
    try:
        store.wait([f"{key}/{other}" for other in range(world)], MEETING)
        return all(store.get(f"{key}/{other}").decode() == mark for other in range(world))
    except RuntimeError:
        return False


def _replicas(parameters: Sequence[Parameter], world: int) -> float:
    """How many processes hold the same numbers of these parameters."""
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


def _is_data_parallel(model: nn.Module, wrapped: nn.Module) -> bool:
    if any(hasattr(p, "device_mesh") for p in model.parameters()):
        return True
    if isinstance(wrapped, nn.parallel.DistributedDataParallel):
        return True
    # Made before the model was wrapped, or given the inner one.
    wrappers = (o for o in gc.get_objects() if type(o) is nn.parallel.DistributedDataParallel)
    return any(wrapper.module is model or model in set(wrapper.module.modules()) for wrapper in wrappers)
