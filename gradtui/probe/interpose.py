"""Hears of what torch has no hook for: gradients about to be clipped, and steps that a GradScaler leaves out.

While anybody listens, one function of torch's clipping module and `GradScaler.step` are wrapped; both do what
they did. Scripts may have imported the clipping functions long before, so what those call is wrapped instead.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad

_MAKE_GRADS = "_make_grads"
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
    _listen_to_backward()
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


def is_second_order() -> bool:
    """Whether the backward pass that runs now was asked for by `torch.autograd.grad(…, create_graph=True)`.

    Such a gradient becomes a part of a loss (a gradient penalty, a force); it is none that trains the model.
    """
    global _task, _task_is_second_order
    task = torch._C._current_graph_task_id()
    if task != _task:
        _task, _task_is_second_order = task, _asked_for_second_order
    return _task_is_second_order


_task, _task_is_second_order, _asked_for_second_order = -1, False, False


def _listen_to_backward() -> None:
    """Each backward pass begins with one function, which tells by its caller what is asked for."""
    make = getattr(torch.autograd, _MAKE_GRADS, None)
    if make is None:
        return

    def make_grads(*args: Any, **kwargs: Any) -> Any:
        global _asked_for_second_order
        frame, name = sys._getframe(1), ""
        for _ in range(4):  # others may have wrapped it, too
            name = frame.f_code.co_name
            if name in ("backward", "grad") or frame.f_back is None:
                break
            frame = frame.f_back
        _asked_for_second_order = name == "grad" and bool(frame.f_locals.get("create_graph", False))
        return make(*args, **kwargs)

    _originals[_MAKE_GRADS], _originals["make_grads"] = make, make_grads
    setattr(torch.autograd, _MAKE_GRADS, make_grads)


def _uninstall() -> None:
    # What somebody else has wrapped in the meantime stays: taking ours out from under it would take theirs too.
    if getattr(clip_grad, _GROUPING, None) is _originals.get("grouping"):
        setattr(clip_grad, _GROUPING, _originals[_GROUPING])
    if GradScaler.step is _originals["scaler_step"]:
        GradScaler.step = _originals["step"]  # type: ignore[method-assign]
    if getattr(torch.autograd, _MAKE_GRADS, None) is _originals.get("make_grads", _originals):
        setattr(torch.autograd, _MAKE_GRADS, _originals[_MAKE_GRADS])
    _originals.clear()
