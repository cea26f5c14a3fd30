"""Brings a step's numbers from the device to the host: one vector, one transfer, never waited for on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradtui.probe.accumulator import StepAccumulator, Totals, matrix, sums, sums_of_all
from gradtui.probe.transfer import Transfer
from gradtui.runs.schema import Floats


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step's numbers on the host: `sums` per row and site, `scalars` by name, `vectors`, the sender's `tag`."""

    tag: Any
    scalars: dict[str, float]
    sums: Totals
    width: list[int]
    vectors: list[Floats]

    def matrix(self, metrics: Sequence[str]) -> Floats:
        """The metrics × sites that the numbers make up."""
        return matrix(self.sums, self.width, metrics)


@dataclass(frozen=True, slots=True)
class _Sent:
    tag: Any
    tally: StepAccumulator
    names: list[str]
    known: dict[str, float]
    count: int
    lengths: list[int]


class Wire:
    """Sends tallies off and hands out what has arrived."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._transfer = Transfer(device)

    def send(
        self,
        tally: StepAccumulator,
        scalars: Mapping[str, Tensor | float],
        tag: Any,
        vectors: Sequence[Tensor] = (),
    ) -> list[PendingStep]:
        """Send a step off; returns what has arrived: on a CPU this step, on a GPU the one before.

        A tensor among `scalars` travels with the others, without being waited for; of several numbers its mean.
        `vectors` travel along whole.
        """
        tensors = {name: _scalar(value) for name, value in scalars.items() if isinstance(value, Tensor)}
        known = {name: float(value) for name, value in scalars.items() if not isinstance(value, Tensor)}
        if tally.combined is None:
            vector, count = self._stack([*tally.values, *tensors.values()]), len(tally.values)
        else:
            sums, count = tally.combined, len(tally.combined)
            vector = torch.cat([sums, self._stack([*tensors.values()]).to(sums)]) if tensors else sums
        if vectors:
            vector = torch.cat([vector, *(v.detach().flatten().to(vector) for v in vectors)])
        tally.values, tally.combined = [], None  # the host needs only where they belong
        sent = _Sent(tag, tally, list(tensors), known, count, [v.numel() for v in vectors])
        return [PendingStep(*arrived) for arrived in self._transfer.push(vector, sent)]

    def drain(self) -> list[PendingStep]:
        """What is still under way after the last step."""
        return [PendingStep(*arrived) for arrived in self._transfer.drain()]

    def _stack(self, values: list[Tensor]) -> Tensor:
        if not values:
            return torch.zeros(0, device=self.device)
        try:
            return torch.stack(values)
        except RuntimeError:  # a model on several devices
            return torch.stack([value.to(self.device, non_blocking=True) for value in values])


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step's numbers as they arrived. Opening them costs host time, which may be somebody else's."""

    numbers: Floats
    sent: _Sent

    def open(self) -> MeasuredStep:
        """Tell the numbers apart and add them up."""
        sent, count = self.sent, self.sent.count
        ends = count + len(sent.names) + np.cumsum([0, *sent.lengths])
        named = self.numbers[count : ends[0]]
        vectors = [self.numbers[start:end] for start, end in pairwise(ends)]
        scalars = sent.known | dict(zip(sent.names, map(float, named), strict=True))
        numbers, tally = self.numbers[:count].astype(np.float64), sent.tally
        if count == len(tally.places):
            total = sums(numbers, tally.places, tally.elements)
        else:
            total = sums_of_all(numbers, len(tally.elements))
        return MeasuredStep(sent.tag, scalars, total.unscaled(scalars), sent.tally.width, vectors)


def _scalar(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.ndim:
        tensor = tensor.float().mean()
    return tensor if tensor.is_floating_point() else tensor.float()
