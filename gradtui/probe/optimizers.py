"""Hooks on the optimizers of one model."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle


class StepListener(Protocol):
    """Told of the steps of optimizers, which it knows by their position. No method may raise."""

    def before_step(self, optimizer: int, *, has_closure: bool) -> None:
        """It is about to step; `has_closure`: the forward and backward pass are part of the step."""

    def after_step(self, optimizer: int) -> None:
        """It has stepped."""


class OptimizerHooks:
    """The optimizers of one model, in the order in which they were added; `listener` is told of their steps."""

    def __init__(self, listener: StepListener) -> None:
        self._listener = listener
        self.optimizers: list[Optimizer] = []
        self._handles: list[RemovableHandle] = []
        self._is_attached = False

    def add(self, optimizer: Optimizer) -> None:
        """Add an optimizer, not a wrapper of one; without effect where it is known."""
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
            if self._is_attached:
                self._hook(len(self.optimizers) - 1)

    def position(self, optimizer: Optimizer) -> int | None:
        """Which one it, or the optimizer that it wraps, is; None if it is none of them."""
        inner = inner_optimizer(optimizer)
        return self.optimizers.index(inner) if inner in self.optimizers else None

    def learning_rate(self) -> Tensor | float | None:
        """That of the first optimizer's first group; None without an optimizer."""
        if not self.optimizers:
            return None
        rate = self.optimizers[0].param_groups[0].get("lr")
        return rate.clone() if isinstance(rate, Tensor) else rate

    def attach(self) -> None:
        """Register the hooks."""
        self._is_attached = True
        for position in range(len(self.optimizers)):
            self._hook(position)

    def detach(self) -> None:
        """Remove the hooks."""
        self._is_attached = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, position: int) -> None:
        # A step that is compiled as a whole must not take a hook into its graph.
        def before(_optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if not torch.compiler.is_compiling():
                closure = kwargs.get("closure") or next((a for a in args[1:] if a is not None), None)
                self._listener.before_step(position, has_closure=closure is not None)

        def after(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            if not torch.compiler.is_compiling():
                self._listener.after_step(position)

        optimizer = self.optimizers[position]
        self._handles.append(optimizer.register_step_pre_hook(before))
        self._handles.append(optimizer.register_step_post_hook(after))


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """The one that really steps, inside wrappers such as Accelerate's."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer
