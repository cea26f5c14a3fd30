"""Measures tensors inside a model: their size in the forward pass, their gradient in the backward pass.

A forward pass counts once its gradient arrives. So passes without gradients (evaluation, `torch.no_grad`, the
first pass of a checkpointed block) are left out, and a checkpointed block is not counted twice.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradtui.probe.accumulator import (
    STREAM,
    STREAM_GRAD,
    STREAM_SUM,
    TRUNK,
    MeasuringHints,
    StepAccumulator,
)
from gradtui.probe.hooks import Removable, is_from_signal_handler, is_second_order, on_call, on_gradient
from gradtui.probe.trace import ForwardTrace, HookPoint

# More values than this are added up before the step comes (very many micro-batches, or no step at all).
MOST_VALUES = 10_000
# The listener is told once gradients were thrown away so many times without a step.
MANY_PASSES = 25
_HALF = frozenset({torch.float16, torch.bfloat16})
_norm = torch.linalg.vector_norm
_is_in_transform = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda _tensor: False)


class ActivationListener(Protocol):
    """Told by `ActivationHooks` what concerns more than one tensor. No method may raise."""

    def on_first_forward(self) -> None:
        """A hook point is reached for the first time; called in the thread that runs the model."""

    def is_gradient_cleared(self) -> bool:
        """Whether all gradients of the step so far have been thrown away (`zero_grad` without a step)."""

    def on_passes_without_step(self) -> None:
        """Very much has been measured without a step of the optimizer."""


class ActivationHooks:
    """Hooks at `points`; point k is measured as the site `sites[k]` of so many as `hints` knows (default: site k).

    `rows` are the rows to measure. `enabled` switches all of it off and on, without removing the hooks. An error
    while measuring is kept in `ForwardHook.error`; the model never notices.
    """

    def __init__(
        self,
        points: Sequence[HookPoint],
        rows: frozenset[int],
        *,
        sites: Sequence[int] | None = None,
        hints: MeasuringHints | None = None,
        listener: ActivationListener | None = None,
    ) -> None:
        self.rows, self.listener = rows, listener
        self.hints = hints or MeasuringHints(len(points))
        self.enabled = True
        self.trace = ForwardTrace()
        self.hooks = [
            ForwardHook(self, point, site, is_first=index == 0)
            for index, (point, site) in enumerate(zip(points, sites or range(len(points)), strict=True))
        ]
        # Outputs that need no gradient (frozen layers), by site: the last one before the step is the training
        # pass's.
        self.without_gradient: dict[int, tuple[list[Tensor], tuple[int, ...], int]] = {}
        self.accumulator = self._empty()
        self._attached: list[Removable] = []
        self._leaf_hooks: list[RemovableHandle] = []
        self._passes_thrown_away = 0

    def _empty(self) -> StepAccumulator:
        return StepAccumulator.empty(self.hints.sites)

    def attach(self) -> None:
        """Register the hooks; without effect where they are."""
        if self._attached:
            return
        for hook in self.hooks:
            try:
                self._attached.append(on_call(hook.point.module, hook.measure, of_input=hook.point.of_input))
            except Exception as error:  # a module that takes no hooks (a compiled script, say)
                hook.error = f"{type(error).__name__}: {error}"

    def detach(self) -> None:
        """Remove the hooks."""
        for attached in reversed(self._attached):
            attached.remove()
        self._attached.clear()

    def reattach(self, model: nn.Module) -> None:
        """Register the hooks anew: those of modules that `model` has compiled since then, outside their graphs."""
        compiled = {
            inner: m for m in model.modules() if isinstance(inner := getattr(m, "_orig_mod", None), nn.Module)
        }
        self.detach()
        for hook in self.hooks:
            module = compiled.get(hook.point.module, hook.point.module)
            hook.point = dataclasses.replace(hook.point, module=module)
        self.attach()

    def measure_trunk(self, on: bool) -> None:
        """Whether to measure the row TRUNK, too, at modules that have a `trunk_listener` (those of the zoo)."""
        if TRUNK not in self.rows:
            return
        for hook in self.hooks:
            if hasattr(hook.point.module, "trunk_listener") and not hook.point.of_input:
                setattr(hook.point.module, "trunk_listener", TrunkHook(self, hook.site) if on else None)  # noqa: B010

    def take_over(self, earlier: ActivationHooks, site_of: Mapping[int, int]) -> None:
        """Continue with what `earlier` has measured in this step; its site s is the site `site_of[s]` here."""
        shapes = {site_of[hook.site]: hook.shape for hook in earlier.hooks if hook.site in site_of}
        for hook in self.hooks:
            hook.shape = shapes.get(hook.site)
        self.accumulator = earlier.take().moved(site_of, self.hints.sites)

    def take(self) -> StepAccumulator:
        """Everything measured since the last call."""
        taken, self.accumulator = self.accumulator, self._empty()
        self._passes_thrown_away = 0
        while self._leaf_hooks:
            self._leaf_hooks.pop().remove()
        if self.without_gradient:
            measured = {cell % self.hints.sites for cell in taken.cells}
            for site, (values, cells, elements) in self.without_gradient.items():
                if site not in measured:
                    taken.extend(values, cells)
                    taken.elements[site] = elements
            self.without_gradient.clear()
        for hook in self.hooks:
            hook.last_input = None
            taken.width[hook.site] = hook.shape[-1] if hook.shape else 1
        return taken

    def begin_pass(self) -> None:
        """Called at the first hook point of each pass: forget what was thrown away before it.

        Another model's loss (a generator's) sends gradients through this one (its critic), which `zero_grad` then
        clears.
        """
        if self.listener is None or not self.accumulator.values or not self.listener.is_gradient_cleared():
            return
        self.accumulator = self._empty()
        self._passes_thrown_away += 1
        if self._passes_thrown_away % MANY_PASSES == 0:
            self.listener.on_passes_without_step()

    def add(self, site: int, values: Sequence[Tensor], cells: Sequence[int], elements: int) -> None:
        """Count a tensor of so many elements whose gradient has arrived."""
        accumulator = self.accumulator
        accumulator.values += values
        accumulator.cells += cells
        accumulator.elements[site] += elements
        if len(accumulator.values) > MOST_VALUES:
            accumulator.fold()
            if self.listener is not None:
                self.listener.on_passes_without_step()

    def follow_gradient(self, tensor: Tensor, hook: GradientHook) -> None:
        """Call `hook` with the gradient of `tensor`, once it is known."""
        if tensor.is_leaf:  # lives on after this step, and the hook must not
            self._leaf_hooks.append(tensor.register_hook(hook))
        else:
            on_gradient(tensor, hook)

    def sum_dtype(self, site: int, tensor: Tensor) -> torch.dtype | None:
        """What to sum squares in: half precision cannot hold the square of 300, single not that of 1e-23."""
        if site in self.hints.precise_sites and tensor.device.type != "mps":  # which has nothing beyond single
            return torch.complex128 if tensor.is_complex() else torch.float64
        return torch.float32 if tensor.dtype in _HALF else None


class ForwardHook:
    """Measures one hook point at each forward pass. Runs often: short, and nothing computed twice."""

    def __init__(self, hooks: ActivationHooks, point: HookPoint, site: int, *, is_first: bool) -> None:
        self.hooks, self.point, self.site = hooks, point, site
        self.shape: torch.Size | None = None  # of the newest tensor
        self.error = ""
        self.last_input: weakref.ref[Tensor] | None = None  # in this step
        self.with_gradient = STREAM_GRAD in hooks.rows
        self._is_first = is_first
        self._elements = -1
        self._with_norm = STREAM in hooks.rows
        self._with_sum = STREAM_SUM in hooks.rows and point.measure_mean
        wanted = ((STREAM, self._with_norm), (STREAM_SUM, self._with_sum), (STREAM_GRAD, self.with_gradient))
        self.cells = tuple(row * hooks.hints.sites + site for row, want in wanted if want)
        self._forward_cells = self.cells[:-1] if self.with_gradient else self.cells

    def measure(self, value: Any) -> None:
        """Measure the output or the (args, kwargs) of a call."""
        if not self.hooks.enabled:
            return
        try:
            tensor = value if isinstance(value, Tensor) else stream_tensor(value)
            if tensor is None:
                return
            if torch.is_grad_enabled():
                self._measure(tensor)
            elif self._elements < 0 and not _is_in_transform(tensor):
                # Not a training pass, but it shows shapes and order. Of a reentrant checkpoint only the first pass
                # does: the second one runs backwards, block by block.
                self._note_shape(tensor)
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            self.fail(error)

    def _measure(self, tensor: Tensor) -> None:
        hooks = self.hooks
        if self._is_first:
            hooks.begin_pass()
        if _is_in_transform(tensor):
            raise RuntimeError("it runs inside torch.func, whose tensors exist only there")
        x = tensor.detach()
        elements = x.numel()
        if elements != self._elements:
            self._note_shape(tensor)
        dtype = hooks.sum_dtype(self.site, x)
        values = [_norm(x, dtype=dtype)] if self._with_norm else []
        if self._with_sum:
            values.append(_norm(x.sum(-1, dtype=dtype) if x.ndim else x, dtype=dtype))
        if not tensor.requires_grad:
            hooks.without_gradient[self.site] = values, self._forward_cells, elements
            return
        if self.point.of_input:
            # Recomputed or called again, the module gets the very same tensor, which has one gradient.
            if self.last_input is not None and self.last_input() is tensor:
                return
            self.last_input = weakref.ref(tensor)
        hooks.follow_gradient(tensor, GradientHook(self, values, elements))

    def _note_shape(self, tensor: Tensor) -> None:
        if self.shape is None:
            self.hooks.trace.record(self.point, tensor)
            if self.hooks.listener is not None:
                self.hooks.listener.on_first_forward()
        self.shape, self._elements = tensor.shape, tensor.numel()

    def fail(self, error: Exception) -> None:
        """Keep the first error."""
        self.error = self.error or f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


class GradientHook:
    """Measures the gradient of one tensor, and counts what the forward pass has measured of it (`values`)."""

    __slots__ = ("elements", "forward", "values")

    def __init__(self, forward: ForwardHook, values: list[Tensor], elements: int) -> None:
        self.forward, self.values, self.elements = forward, values, elements

    def __call__(self, grad: Tensor | None) -> None:
        """Called by autograd; with None where an autograd function has no gradient to give."""
        if grad is None or (torch.is_grad_enabled() and is_second_order()):
            return
        forward, values = self.forward, self.values
        try:
            if forward.with_gradient:
                grad = grad.detach() if grad.requires_grad else grad
                values = [*values, _norm(grad, dtype=forward.hooks.sum_dtype(forward.site, grad))]
            forward.hooks.add(forward.site, values, forward.cells, self.elements)
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            forward.fail(error)


class TrunkHook:
    """The `trunk_listener` of one module: measures the gradient that comes back along its trunk."""

    def __init__(self, hooks: ActivationHooks, site: int) -> None:
        self._hooks, self._cell = hooks, TRUNK * hooks.hints.sites + site

    def __call__(self, trunk: Tensor) -> None:
        """Called with the trunk's tensor in the forward pass."""
        if trunk.requires_grad:
            trunk.register_hook(self._measure)

    def _measure(self, grad: Tensor) -> None:
        self._hooks.accumulator.extend([_norm(grad.detach())], [self._cell])


def stream_tensor(value: Any) -> Tensor | None:
    """The tensor in `value` that is the stream: the first that gradients flow through, else the first.

    A mask may come before it.
    """
    tensors = list(tensors_in(value))
    return next((tensor for tensor in tensors if tensor.requires_grad), tensors[0] if tensors else None)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The floating-point tensors in a tensor, tuple, list, mapping or dataclass, in order."""
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from tensors_in(getattr(value, item.name))
