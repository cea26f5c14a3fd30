"""Measures gradients, the residual stream and updates of one model, step by step.

Shape legend: S sites, P parameters; a stream tensor is [..., D], D its width.
Everything is reduced on the device into 0-d tensors; one transfer brings them to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradtui.probe.transfer import Transfer
from gradtui.runs.schema import ABSENT, METRICS, Floats, Site

_STREAM_ROWS = 3  # ‖x‖, ‖mean over D of x‖, ‖∂L/∂x‖


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
        self._site_of_parameter = np.array(
            [index for index, module in enumerate(self._modules) for _ in _own_parameters(module)], np.int64
        )
        self._parameters = [p for module in self._modules for p in _own_parameters(module)]
        self._before = [torch.empty_like(p, requires_grad=False) for p in self._parameters]
        self._stream = torch.zeros(_STREAM_ROWS, len(self.sites), device=device)
        # Views made once: indexing a tensor costs as much as the reduction that is written there.
        self._slots = [list(row) for row in self._stream]
        self._elements = np.zeros(len(self.sites))
        self._width = np.ones(len(self.sites))
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
        norm_slot, mean_slot, grad_slot = (row[index] for row in self._slots)

        def measure_gradient(grad: Tensor) -> None:
            torch.linalg.vector_norm(grad.detach(), out=grad_slot)

        def measure_output(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            if not output.requires_grad:
                return  # an evaluation pass is not a training step
            x = output.detach()
            self._elements[index], self._width[index] = x.numel(), x.shape[-1]
            torch.linalg.vector_norm(x, out=norm_slot)
            torch.linalg.vector_norm(x.mean(-1), out=mean_slot)
            output.register_hook(measure_gradient)

        return measure_output

    @torch.no_grad()
    def after_backward(self) -> None:
        """Take the gradients, before clipping, and remember the parameters as they are before the step."""
        self._graded = [i for i, p in enumerate(self._parameters) if p.grad is not None]
        grads = [p.grad for p in self._parameters if p.grad is not None]
        self._grad_norms = torch._foreach_norm(grads) if grads else []
        self._weight_norms = torch._foreach_norm(self._parameters) if self._parameters else []
        if self._before:
            torch._foreach_copy_(self._before, self._parameters)

    @torch.no_grad()
    def after_step(self, loss: Tensor, tag: Any) -> list[tuple[Any, float, Floats]]:
        """Measure the update and send everything off; returns what has arrived: (tag, loss, [M, S]).

        On a CPU this step's values arrive at once, on a GPU those of the step before, so that nothing waits.
        """
        norms = [*self._grad_norms, *self._weight_norms]
        if self._before:
            torch._foreach_sub_(self._before, self._parameters)
            norms += torch._foreach_norm(self._before)
        packed = torch.cat([loss.detach().float().view(1), self._stream.view(-1), *_stack(norms)])
        shape = (self._elements.copy(), self._width.copy(), self._graded)
        return [self._unpack(*arrived) for arrived in self._transfer.push(packed, (tag, shape))]

    def drain(self) -> list[tuple[Any, float, Floats]]:
        """What is still under way after the last step."""
        return [self._unpack(*arrived) for arrived in self._transfer.drain()]

    def _unpack(self, host: Floats, context: Any) -> tuple[Any, float, Floats]:
        tag, (elements, width, graded) = context
        sites, parameters = len(self.sites), len(self._parameters)
        numbers = host.astype(np.float64)
        loss, stream, rest = (
            numbers[0],
            numbers[1 : 1 + 3 * sites].reshape(3, sites),
            numbers[1 + 3 * sites :],
        )
        norm, mean, grad = stream
        grads, weights, deltas = np.split(rest, [len(graded), len(graded) + parameters])
        owner = self._site_of_parameter
        with np.errstate(all="ignore"):
            weight = _by_site(weights, owner, sites)
            values = {
                "grad_norm": _by_site(grads, owner[graded], sites),
                "act_rms": norm / np.sqrt(elements),
                "stream_grad": grad,
                "weight_norm": weight,
                # A ratio to zero weights is undefined, a zero stream has no mean.
                "update_ratio": np.where(weight <= 0, ABSENT, _by_site(deltas, owner, sites) / weight),
                "mean_share": np.where(norm == 0, 0, np.square(mean / norm) * width),
            }
            matrix = np.stack([values[name] for name in METRICS]).astype(np.float32)
        return tag, float(np.float32(loss)), matrix


def _own_parameters(module: nn.Module) -> Iterable[nn.Parameter]:
    return (p for p in module.parameters() if p.requires_grad)


def _stack(norms: list[Tensor]) -> list[Tensor]:
    return [torch.stack(norms).float()] if norms else []


def _by_site(norms_P: np.ndarray, owner_P: np.ndarray, sites: int) -> np.ndarray:
    """The 2-norm over all parameters of each site, [S]; ABSENT for a site that has none."""
    squares = np.bincount(owner_P, weights=np.square(norms_P), minlength=sites)
    count = np.bincount(owner_P, minlength=sites)
    return np.where(count > 0, np.sqrt(squares), ABSENT)
