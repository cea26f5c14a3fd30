"""Where a model is measured, and how tensors went from place to place in its first forward pass."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Key = tuple[nn.Module, bool]


@dataclass(frozen=True, slots=True)
class HookPoint:
    """A tensor to measure: the output of `module`, or its input.

    `measure_mean` says whether the row STREAM_SUM makes sense for it: whether its last dimension is the stream's.
    """

    module: nn.Module
    of_input: bool = False
    measure_mean: bool = True

    @property
    def key(self) -> Key:
        """Identifies the tensor, whatever is measured of it."""
        return self.module, self.of_input


@dataclass(slots=True)
class ForwardTrace:
    """How tensors went through a model in its first forward pass, by `HookPoint.key`.

    `shapes` in the order of the first calls; `passed_on[key]` is the point just before it, where that produced the
    very tensor that is this point's input; `shared[key]` is another point with the very same input.
    """

    shapes: dict[Key, torch.Size] = field(default_factory=dict)
    passed_on: dict[Key, Key] = field(default_factory=dict)
    shared: dict[Key, Key] = field(default_factory=dict)
    _last: tuple[Key, weakref.ref[Tensor]] | None = None
    _inputs: dict[int, tuple[Key, weakref.ref[Tensor]]] = field(default_factory=dict)  # by id of the tensor

    def record(self, point: HookPoint, tensor: Tensor) -> None:
        """Note the first tensor at `point`."""
        key, reference = point.key, weakref.ref(tensor)
        self.shapes[key] = tensor.shape
        if point.of_input:
            if self._last is not None and self._last[1]() is tensor:
                self.passed_on[key] = self._last[0]
            other, known = self._inputs.get(id(tensor), (key, None))
            if known is not None and known() is tensor:
                self.shared[key] = other
            self._inputs[id(tensor)] = key, reference
        self._last = key, reference
