"""Measures gradients, the residual stream and updates of one model, step by step.

Shape legend: M metrics, S sites; a stream tensor is [..., D], D its width.
Everything is reduced on the device into one small buffer; one transfer brings it to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradtui.probe.transfer import Transfer
from gradtui.runs.schema import ABSENT, METRICS, Floats, Site

# Rows of the buffer, S numbers each. The weights have two, which take turns: one for before a step, one for
# after it, so that every number is read once, while it is still in the cache.
GRAD, DELTA, STREAM, STREAM_SUM, STREAM_GRAD, WEIGHT = range(6)
_ROWS = 7
_ROW = {name: row for row, name in enumerate(METRICS)}
_VERSION = attrgetter("_version")
_norm = torch.linalg.vector_norm

Arrived = tuple[Any, float, Floats]


class Meter:
    """Measures the sites of one model; call its methods in this order, every step:

    forward and backward → `after_backward` → (clipping) → optimizer step → `after_step`.

    `sites` pairs each site with the module that owns exactly its parameters and whose output is the stream
    leaving it. Between `attach` and `detach` forward hooks are live; they read tensors and change none, so
    the loss is bit-identical with and without them.
    """

    def __init__(self, sites: Sequence[tuple[Site, nn.Module]], device: torch.device) -> None:
        self.sites = tuple(site for site, _ in sites)
        self._modules = [module for _, module in sites]
        self._groups = [[p for p in module.parameters() if p.requires_grad] for module in self._modules]
        self._parameters = [p for group in self._groups for p in group]
        self._owns = np.array([bool(group) for group in self._groups])
        self._firsts = [group[0] for group in self._groups if group]  # other memory comes to all of a site at once
        self._owners = [index for index, group in enumerate(self._groups) if group]
        self._weights = [torch.empty(0)] * len(sites)
        self._turn = 0
        self._known_state: tuple[list[int], list[int]] | None = None
        self._buffer = torch.zeros(1 + _ROWS * len(sites), device=device)
        # Views made once: indexing a tensor costs as much as the reduction that is written there.
        self._loss_slot = self._buffer[0]
        self._slots = [list(row) for row in self._buffer[1:].view(_ROWS, -1)]
        self._elements = np.zeros(len(sites))
        self._width = np.ones(len(sites))
        self._graded = self._owns
        self._handles: list[RemovableHandle] = []
        self._transfer = Transfer(device)

    def attach(self) -> None:
        """Start listening to forward passes."""
        for index, module in enumerate(self._modules):
            self._handles.append(module.register_forward_hook(self._on_output(index)))

    def detach(self) -> None:
        """Stop listening; the model carries no trace."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _on_output(self, index: int) -> Callable[[nn.Module, Any, Tensor], None]:
        stream, stream_sum, stream_grad = (self._slots[row][index] for row in (STREAM, STREAM_SUM, STREAM_GRAD))

        shape: list[torch.Size | None] = [None]

        def measure_gradient(grad: Tensor) -> None:
            _norm(grad.detach() if grad.requires_grad else grad, out=stream_grad)

        def measure_output(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            if not output.requires_grad:
                return  # an evaluation pass is not a training step
            x = output.detach()
            if x.shape != shape[0]:
                shape[0] = x.shape
                self._elements[index], self._width[index] = x.numel(), x.shape[-1]
            _norm(x, out=stream)
            _norm(x.sum(-1), out=stream_sum)
            output.register_hook(measure_gradient)

        return measure_output

    @torch.no_grad()
    def after_backward(self) -> None:
        """Take the gradients, before clipping, and know the parameters as they are before the step."""
        graded = []
        for group, slot in zip(self._groups, self._slots[GRAD], strict=True):
            grads = [grad for p in group if (grad := p.grad) is not None]
            graded.append(bool(grads))
            if grads:
                _norm(_flatten(grads), out=slot)
        self._graded = np.array(graded)
        if self._state() != self._known_state:
            # Somebody else has changed the weights since the last step, or this is the first.
            slots = self._slots[WEIGHT + self._turn]
            for index in self._owners:
                weights = self._weights[index] = _flatten(self._groups[index])
                _norm(weights, out=slots[index])

    @torch.no_grad()
    def after_step(self, loss: Tensor, tag: Any) -> list[Arrived]:
        """Measure the update and send everything off; returns what has arrived: (tag, loss, [M, S]).

        On a CPU this step's values arrive at once, on a GPU those of the step before, so that nothing waits.
        """
        self._loss_slot.copy_(loss)
        context = (tag, self._elements.copy(), self._width.copy(), self._graded, self._turn)
        self._turn ^= 1
        groups, before = self._groups, self._weights
        for index in self._owners:
            weights = _flatten(groups[index])
            _norm(before[index].sub_(weights), out=self._slots[DELTA][index])
            _norm(weights, out=self._slots[WEIGHT + self._turn][index])
            before[index] = weights
        self._known_state = self._state()
        return [self._unpack(*arrived) for arrived in self._transfer.push(self._buffer, context)]

    def _state(self) -> tuple[list[int], list[int]]:
        """Changes whenever somebody changes a parameter, in place or by giving it other memory."""
        return list(map(_VERSION, self._parameters)), list(map(Tensor.data_ptr, self._firsts))

    def drain(self) -> list[Arrived]:
        """What is still under way after the last step."""
        return [self._unpack(*arrived) for arrived in self._transfer.drain()]

    def _unpack(self, host: Floats, context: Any) -> Arrived:
        tag, elements, width, graded, turn = context
        rows = host[1:].astype(np.float64).reshape(_ROWS, -1)
        weights = rows[WEIGHT + turn]
        matrix = np.empty((len(METRICS), len(self.sites)), np.float32)
        with np.errstate(all="ignore"):
            matrix[_ROW["grad_norm"]] = rows[GRAD]
            matrix[_ROW["act_rms"]] = rows[STREAM] / np.sqrt(elements)
            matrix[_ROW["stream_grad"]] = rows[STREAM_GRAD]
            matrix[_ROW["weight_norm"]] = weights
            matrix[_ROW["update_ratio"]] = rows[DELTA] / weights
            matrix[_ROW["mean_share"]] = np.square(rows[STREAM_SUM] / rows[STREAM]) / width
        if not rows[STREAM].all():
            matrix[_ROW["mean_share"], rows[STREAM] == 0] = 0  # a zero stream has no mean
        if not weights.all():
            # Sites without parameters have weight 0 here; a ratio to zero weights is undefined, too.
            matrix[_ROW["update_ratio"], weights == 0] = ABSENT
            matrix[_ROW["weight_norm"], ~self._owns] = ABSENT
        if not graded.all():
            matrix[_ROW["grad_norm"], ~graded] = ABSENT
        return tag, float(host[0]), matrix


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers in one new vector: one reduction of it is cheaper than one per parameter."""
    flat: Tensor = torch._utils._flatten_dense_tensors(tensors)
    # Of a single tensor the flat vector would be a view, and change with it.
    return flat if len(tensors) > 1 else flat.clone()
