"""Hears of what torch has no hook for: gradients about to be clipped, and steps that a GradScaler leaves out.

While anybody listens, one function of torch's clipping module and `GradScaler.step` are wrapped; both do what
they did. Scripts may have imported the clipping functions long before, so what those call is wrapped instead.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad

_GROUPING = "_group_tensors_by_device_and_dtype"


class Listener(Protocol):
    """What wants to hear; none of these may raise."""

    thread: int  # the one that trains

    def clipping(self, gradients: Sequence[Tensor]) -> None:
        """These gradients are about to be looked at or clipped."""

    def scaling(self, optimizer: torch.optim.Optimizer, scale: Tensor | None) -> None:
        """The optimizer is about to step, its loss having been multiplied by `scale`."""

    def scaled(self, optimizer: torch.optim.Optimizer) -> None:
        """It has stepped, or was left out because its gradients are not finite."""


# Weak: who forgets to leave is not kept alive by that.
_listeners: list[weakref.ref[Listener]] = []


def _living() -> list[Listener]:
    return [listener for reference in _listeners if (listener := reference()) is not None]


def _here() -> tuple[Listener, ...]:
    """Those whose model this thread trains: to look at gradients while another one changes them is fatal."""
    me = threading.get_ident()
    return tuple(listener for listener in _living() if listener.thread == me)


_originals: dict[str, Callable[..., Any]] = {}


def listen(listener: Listener) -> None:
    """Begin to tell `listener`."""
    if any(known is listener for known in _living()):
        return
    if not _originals:
        _install()
    _listeners.append(weakref.ref(listener))


def leave(listener: Listener) -> None:
    """Tell it no more; torch is as it was once nobody listens."""
    rest = [reference for reference in _listeners if reference() not in (None, listener)]
    if len(rest) < len(_listeners):
        _listeners[:] = rest
        if not rest:
            _uninstall()


def _install() -> None:
    group = getattr(clip_grad, _GROUPING, None)
    if group is not None:

        def grouping(tensors: Sequence[Sequence[Tensor]], *args: Any, **kwargs: Any) -> Any:
            for listener in _here():
                listener.clipping(tensors[0])
            return group(tensors, *args, **kwargs)

        _originals[_GROUPING] = group
        _originals["grouping"] = grouping
        setattr(clip_grad, _GROUPING, grouping)
    step = GradScaler.step

    def scaler_step(self: GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        told = tuple(_living())
        for listener in told:
            listener.scaling(optimizer, self._scale if self.is_enabled() else None)
        result = step(self, optimizer, *args, **kwargs)
        for listener in told:
            listener.scaled(optimizer)
        return result

    _originals["step"], _originals["scaler_step"] = step, scaler_step
    GradScaler.step = scaler_step  # type: ignore[method-assign]


def _uninstall() -> None:
    # What somebody else has wrapped in the meantime stays: taking ours out from under it would take theirs too.
    if getattr(clip_grad, _GROUPING, None) is _originals.get("grouping"):
        setattr(clip_grad, _GROUPING, _originals[_GROUPING])
    if GradScaler.step is _originals["scaler_step"]:
        GradScaler.step = _originals["step"]  # type: ignore[method-assign]
    _originals.clear()
