"""Brings a step's numbers from the device to the host: one vector, one transfer, which a GPU never waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gradtui.probe.accumulator import StepAccumulator, Totals, metric_values
from gradtui.runs.schema import Floats

Reading = tuple[str, int]  # a reading's name and the index of its site


@dataclass(frozen=True, slots=True)
class StepTag:
    """Which step it was, when it ended (Unix time, seconds) and how long it took (seconds)."""

    step: int
    wall: float
    seconds: float


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step's numbers on the host: `totals` per row and site, `scalars` and `readings` by name."""

    tag: StepTag
    scalars: dict[str, float]
    totals: Totals
    readings: dict[Reading, Floats]

    def values(self, metrics: tuple[str, ...]) -> Floats:
        """The metrics [metrics, sites]."""
        return metric_values(self.totals, metrics)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is in a transferred vector: numbers of sites, scalars, readings, in this order."""

    tag: StepTag
    accumulator: StepAccumulator
    numbers: int
    scalars: list[str]
    readings: dict[Reading, int]  # their lengths
    host_scalars: dict[str, float]  # known without a transfer
    is_combined: bool


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step's numbers as they have arrived. Opening them costs host time, which may be another thread's."""

    vector: Floats
    layout: _Layout

    def open(self) -> MeasuredStep:
        """Tell the numbers apart and add them up."""
        layout = self.layout
        numbers, scalars, *readings = self._parts()
        values = layout.host_scalars | dict(zip(layout.scalars, map(float, scalars), strict=True))
        make = Totals.of_processes if layout.is_combined else Totals.of
        totals = make(layout.accumulator, numbers.astype(np.float64)).unscaled(values)
        return MeasuredStep(layout.tag, values, totals, dict(zip(layout.readings, readings, strict=True)))

    def _parts(self) -> list[Floats]:
        lengths = [self.layout.numbers, len(self.layout.scalars), *self.layout.readings.values()]
        return [self.vector[start:end] for start, end in pairwise(np.cumsum([0, *lengths]))]


class Transfer:
    """Sends steps off and hands out those that have arrived.

    On CUDA a step is read one step late, from pinned memory; elsewhere at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_late = device.type == "cuda"
        self._pinned: list[Tensor] = []
        self._turn = 0
        self._pending: list[tuple[Tensor, torch.cuda.Event, _Layout]] = []

    def send(
        self,
        tag: StepTag,
        accumulator: StepAccumulator,
        scalars: Mapping[str, Tensor | float],
        readings: Mapping[Reading, Tensor] | None = None,
    ) -> list[PendingStep]:
        """Send a step off; returns what has arrived: on a CPU this step, on a GPU the one before.

        A tensor among `scalars` travels with the others, without being waited for; of several numbers its mean.
        Afterwards the accumulator's values are gone.
        """
        tensors = {name: _scalar(value) for name, value in scalars.items() if isinstance(value, Tensor)}
        known = {name: float(value) for name, value in scalars.items() if not isinstance(value, Tensor)}
        sums = accumulator.combined
        if sums is None:
            numbers, vector = len(accumulator.values), self._stack([*accumulator.values, *tensors.values()])
        else:
            numbers = len(sums)
            vector = torch.cat([sums, self._stack([*tensors.values()]).to(sums)]) if tensors else sums
        if readings:
            vector = torch.cat([vector, *(v.detach().flatten().to(vector) for v in readings.values())])
        lengths = {key: vector.numel() for key, vector in (readings or {}).items()}
        accumulator.values, accumulator.combined = [], None  # the host needs only where they belong
        layout = _Layout(tag, accumulator, numbers, list(tensors), lengths, known, sums is not None)
        return self._push(vector, layout)

    def drain(self) -> list[PendingStep]:
        """Wait for the step under way, if there is one; by the next step it has long arrived."""
        arrived = []
        for host, event, layout in self._pending:
            event.synchronize()
            arrived.append(PendingStep(host.numpy().copy(), layout))
        self._pending.clear()
        return arrived

    def _push(self, vector: Tensor, layout: _Layout) -> list[PendingStep]:
        if not self._is_late:
            return [PendingStep(vector.cpu().numpy(), layout)]
        arrived = self.drain()
        known = self._pinned[0] if self._pinned else None
        if known is None or known.numel() < vector.numel() or known.dtype != vector.dtype:
            self._pinned = [torch.empty(vector.numel(), dtype=vector.dtype, pin_memory=True) for _ in range(2)]
        self._turn ^= 1
        host = self._pinned[self._turn][: vector.numel()]
        host.copy_(vector, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._pending.append((host, event, layout))
        return arrived

    def _stack(self, values: list[Tensor]) -> Tensor:
        if not values:
            return torch.zeros(0, device=self.device)
        try:
            return torch.stack(values)
        except RuntimeError:  # a model on several devices
            return torch.stack([value.to(self.device, non_blocking=True) for value in values])


def _scalar(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.ndim:
        tensor = tensor.float().mean()
    return tensor if tensor.is_floating_point() else tensor.float()
