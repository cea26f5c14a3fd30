"""Tells of events for which torch has no hook: gradients about to be clipped, steps that a GradScaler leaves out.

As long as there is a listener, one function of torch's clipping module and `GradScaler.step` are wrapped; both do
what they did. Scripts may have imported the clipping functions long before, so a function that those call is
wrapped instead.
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


class PatchListener(Protocol):
    """Told of these events. No method may raise."""

    thread: int
    """The one that trains. Clipping is told only from there: to read gradients while another thread changes them
    would crash."""

    def before_clipping(self, gradients: Sequence[Tensor]) -> None:
        """The norm of these gradients is about to be taken, or they are about to be clipped."""

    def before_scaled_step(self, optimizer: torch.optim.Optimizer, scale: Tensor | None) -> None:
        """A GradScaler is about to let the optimizer step; the loss was multiplied by `scale` (None: disabled)."""

    def after_scaled_step(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has stepped, or was left out because its gradients are not finite."""


# Weak, so that a listener that is dropped without `remove_listener` is freed.
_listeners: list[weakref.ref[PatchListener]] = []
_originals: dict[str, Callable[..., Any]] = {}


def add_listener(listener: PatchListener) -> None:
    """Begin to tell `listener`; without effect where it is told already."""
    if any(known is listener for known in _living()):
        return
    if not _originals:
        _install()
    _listeners.append(weakref.ref(listener))


def remove_listener(listener: PatchListener) -> None:
    """Tell it no more; torch is as it was once there is no listener."""
    rest = [reference for reference in _listeners if reference() not in (None, listener)]
    if len(rest) < len(_listeners):
        _listeners[:] = rest
        if not rest:
            _uninstall()


def _living() -> list[PatchListener]:
    return [listener for reference in _listeners if (listener := reference()) is not None]


def _install() -> None:
    group = getattr(clip_grad, _GROUPING, None)
    if group is not None:

        def grouping(tensors: Sequence[Sequence[Tensor]], *args: Any, **kwargs: Any) -> Any:
            for listener in _living():
                if listener.thread == threading.get_ident():
                    listener.before_clipping(tensors[0])
            return group(tensors, *args, **kwargs)

        _originals[_GROUPING] = group
        _originals["grouping"] = grouping
        setattr(clip_grad, _GROUPING, grouping)
    step = GradScaler.step

    def scaler_step(self: GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        listeners = _living()
        for listener in listeners:
            listener.before_scaled_step(optimizer, self._scale if self.is_enabled() else None)
        result = step(self, optimizer, *args, **kwargs)
        for listener in listeners:
            listener.after_scaled_step(optimizer)
        return result

    _originals["step"], _originals["scaler_step"] = step, scaler_step
    GradScaler.step = scaler_step  # type: ignore[method-assign]


def _uninstall() -> None:
    # A function that something else has wrapped in the meantime stays: removing ours would remove that one, too.
    if getattr(clip_grad, _GROUPING, None) is _originals.get("grouping"):
        setattr(clip_grad, _GROUPING, _originals[_GROUPING])
    if GradScaler.step is _originals["scaler_step"]:
        GradScaler.step = _originals["step"]  # type: ignore[method-assign]
    _originals.clear()
