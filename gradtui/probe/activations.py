"""Listens to tensors on their way through a model: their size going forward, their gradient coming back.

A call counts once its gradient arrives. So passes without gradient (evaluation, `torch.no_grad`, the first pass of
a checkpointed block) are left out by themselves, and recomputation is not counted twice.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradtui.probe.accumulator import STREAM, STREAM_GRAD, STREAM_SUM, TRUNK, StepAccumulator
from gradtui.probe.hooks import Removable, on_compiled_call, on_input, on_output

_norm = torch.linalg.vector_norm
# More than this is added up before the step comes (very many micro-batches, or no step at all).
MOST_VALUES = 10_000
MANY_PASSES = 25
_AUTOGRAD = Path(torch.autograd.__file__).parent
_OURS = -1  # torch numbers the hooks of others from 0
_HALF = frozenset({torch.float16, torch.bfloat16})
_in_transform = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda _tensor: False)


@dataclass(frozen=True, slots=True)
class HookPoint:
    """Where to listen: at what `module` returns, or at what it is given; `share`: also how much of it is mean."""

    module: nn.Module
    of_input: bool = False
    share: bool = True

    @property
    def key(self) -> tuple[nn.Module, bool]:
        """Which tensor it is, whatever is measured of it."""
        return self.module, self.of_input


@dataclass(frozen=True, slots=True)
class ForwardTrace:
    """What a forward pass has told, by `HookPoint.key`.

    `shapes` (None: not heard), `order` of the first calls, `passed_on`: inputs that were the very tensor which
    another tap had just heard, and `shared`: inputs that another tap, an input too, had been given before.
    """

    shapes: Mapping[tuple[nn.Module, bool], torch.Size | None]
    order: Sequence[tuple[nn.Module, bool]]
    passed_on: Mapping[tuple[nn.Module, bool], tuple[nn.Module, bool]]
    shared: Mapping[tuple[nn.Module, bool], tuple[nn.Module, bool]]


class ActivationHooks:
    """Listens at `taps` and writes what it hears into a tally of `count` sites: what tap k hears is `sites[k]`'s.

    `rows` are the rows to measure. `on` switches all of it off and on. `shapes` and `order` tell what was heard,
    by tap, and `passed_on` which input was the very tensor that another tap had just heard: what one block
    returned, the next was given. Whatever goes wrong in listening is kept in `trouble`, by tap; the model never
    notices.
    """

    def __init__(
        self,
        taps: Sequence[HookPoint],
        rows: frozenset[int],
        *,
        sites: Sequence[int] = (),
        count: int | None = None,
    ) -> None:
        self.taps = tuple(taps)
        self.on = True
        self.trouble: dict[int, str] = {}
        self.shapes: list[torch.Size | None] = [None] * len(taps)
        self._sizes = [-1] * len(taps)
        self.order: list[int] = []  # taps in the order in which they were first heard
        self._thrown_away = 0  # passes since the last step
        self._entry = 0  # the tap that a forward pass comes to first
        self.passed_on: dict[int, int] = {}
        self.shared: dict[int, int] = {}
        self._inputs: dict[int, tuple[int, weakref.ref[Tensor]]] = {}  # by id: who was first given it
        self._last: tuple[int, weakref.ref[Tensor]] | None = None
        self.entered: Callable[[], None] = lambda: None  # told of the first forward passes, in their thread
        self.sites = list(sites) or list(range(len(taps)))
        self._count = len(taps) if count is None else count
        self._rows = rows
        # Sites whose squares single precision may not hold; at first that is not known of any.
        self.precise = set(range(self._count))
        self._hooks: list[Removable] = []
        self.folded: Callable[[], None] = lambda: None  # told when very much was heard without a step
        self.is_cleared: Callable[[], bool] = lambda: False  # whether the gradients heard of were thrown away
        # Outputs that need no gradient (frozen layers), by site: the last before the step is the training pass's.
        self._quiet: dict[int, tuple[list[Tensor], tuple[int, ...], int]] = {}
        self._given: dict[int, weakref.ref[Tensor]] = {}  # what input taps have been given in this step
        self._leaves: list[RemovableHandle] = []
        self.tally = self._empty()

    def _empty(self) -> StepAccumulator:
        return StepAccumulator(elements=[0] * self._count, width=[1] * self._count)

    def attach(self) -> None:
        """Start listening."""
        if self._hooks:
            return
        for index, tap in enumerate(self.taps):
            listen = self._listener(index)
            try:
                if tap.module._compiled_call_impl is not None:
                    hook = on_compiled_call(tap.module, listen, of_input=tap.of_input)
                elif tap.of_input:
                    hook = on_input(tap.module, _input(listen))
                else:
                    hook = on_output(tap.module, _output(listen))
                self._hooks.append(hook)
            except Exception as error:  # a module that takes no hooks (a compiled script, say)
                self.trouble[index] = f"{type(error).__name__}: {error}"

    def detach(self) -> None:
        """Stop listening; the modules carry no trace."""
        for hook in reversed(self._hooks):
            hook.remove()
        self._hooks.clear()

    def attach_anew(self, model: nn.Module) -> None:
        """Listen again: where modules have been compiled since, at those, from outside their graphs."""
        compiled = {
            inner: m for m in model.modules() if isinstance(inner := getattr(m, "_orig_mod", None), nn.Module)
        }
        self.detach()
        self.taps = tuple(replace(tap, module=compiled.get(tap.module, tap.module)) for tap in self.taps)
        self.attach()

    def measure_trunk(self, on: bool) -> None:
        """Whether to hear what comes back along the trunk, too, where a module lets it be heard (`trunk_listener`)."""
        if TRUNK not in self._rows:
            return
        for index, tap in enumerate(self.taps):
            if hasattr(tap.module, "trunk_listener") and not tap.of_input:
                trunk_listener = self._along(TRUNK * self._count + self.sites[index]) if on else None
                setattr(tap.module, "trunk_listener", trunk_listener)  # noqa: B010

    def _along(self, place: int) -> Any:
        def measure(grad: Tensor) -> None:
            self.tally.values.append(_norm(grad.detach()))
            self.tally.places.append(place)

        def hear(trunk: Tensor) -> None:
            if trunk.requires_grad:
                trunk.register_hook(measure)

        return hear

    def heard(self) -> ForwardTrace:
        """What was heard up to now."""
        keys = [tap.key for tap in self.taps]
        passed_on = {keys[index]: keys[giver] for index, giver in self.passed_on.items()}
        shared = {keys[index]: keys[other] for index, other in self.shared.items()}
        shapes = dict(zip(keys, self.shapes, strict=True))
        return ForwardTrace(shapes, [keys[index] for index in self.order], passed_on, shared)

    def take(self) -> StepAccumulator:
        """Everything heard since the last call."""
        tally, self.tally = self.tally, self._empty()
        self._thrown_away = 0
        self._given.clear()
        while self._leaves:
            self._leaves.pop().remove()
        if self._quiet:
            heard = {place % self._count for place in tally.places}
            for site, (values, places, elements) in self._quiet.items():
                if site not in heard:
                    tally.values += values
                    tally.places += places
                    tally.elements[site] = elements
            self._quiet.clear()
        for site, shape in zip(self.sites, self.shapes, strict=True):
            tally.width[site] = shape[-1] if shape else 1
        return tally

    def _listener(self, index: int) -> Callable[[Any], None]:
        """What to do with a module's output or input. It runs often: few steps, and nothing computed twice."""
        rows, site, sizes = self._rows, self.sites[index], self._sizes
        with_grad, with_sum = STREAM_GRAD in rows, STREAM_SUM in rows and self.taps[index].share
        with_size, of_input = STREAM in rows, self.taps[index].of_input
        places = self._places(site, with_size, with_sum, with_grad)
        forward = places[:-1] if with_grad else places

        def listen(found: Any) -> None:
            if not self.on:
                return
            try:
                tensor = found if isinstance(found, Tensor) else _stream_of(found)
                if tensor is None:
                    return
                if not torch.is_grad_enabled():
                    # Not a training pass, but it shows shapes and order; that of a reentrant checkpoint alone
                    # shows them as they are: its second one runs backwards, block by block.
                    if sizes[index] < 0 and not _in_transform(tensor):
                        self._resize(index, tensor)
                    return
                if self.tally.values and index == self._entry and self.is_cleared():
                    # Another model's loss came by here (a generator's, through this critic), and then zero_grad.
                    self.tally = self._empty()
                    self._thrown_away += 1
                    if self._thrown_away % MANY_PASSES == 0:
                        self.folded()
                if _in_transform(tensor):
                    raise RuntimeError("it runs inside torch.func, whose tensors exist only there")
                x = tensor.detach()
                elements = x.numel()
                if elements != sizes[index]:
                    self._resize(index, tensor)
                wide = self._width_for(site, x)
                values = [_norm(x, dtype=wide)] if with_size else []
                if with_sum:
                    values.append(_norm(x.sum(-1, dtype=wide) if x.ndim else x, dtype=wide))
                if tensor.requires_grad:
                    hook = partial(measure_gradient, values, elements)
                    if of_input:
                        # Recomputed or called again, the module is given the very tensor; it has one gradient.
                        given = self._given.get(index)
                        if given is not None and given() is tensor:
                            return
                        self._given[index] = weakref.ref(tensor)
                    if tensor.is_leaf:  # lives on after this step, and our hook must not
                        self._leaves.append(tensor.register_hook(hook))
                    else:
                        _on_gradient(tensor, hook)
                else:
                    self._quiet[site] = values, forward, elements
            except Exception as error:
                if by_signal(error):
                    raise
                self._give_up(index, error)

        def measure_gradient(values: list[Tensor], elements: int, grad: Tensor | None) -> None:
            # None comes from an autograd function that has nothing to give.
            if grad is None or (torch.is_grad_enabled() and is_second_order()):
                return
            try:
                if with_grad:
                    grad = grad.detach() if grad.requires_grad else grad
                    values = [*values, _norm(grad, dtype=self._width_for(site, grad))]
                tally = self.tally
                tally.values += values
                tally.places += places
                tally.elements[site] += elements
                if len(tally.values) > MOST_VALUES:
                    tally.fold(self._count)
                    self.folded()
            except Exception as error:
                if by_signal(error):
                    raise
                self._give_up(index, error)

        return listen

    def _width_for(self, site: int, tensor: Tensor) -> torch.dtype | None:
        """What to sum in: half precision cannot hold the square of 300, single not that of 1e-23."""
        if site in self.precise and tensor.device.type != "mps":  # which knows no more than single
            return torch.complex128 if tensor.is_complex() else torch.float64
        return torch.float32 if tensor.dtype in _HALF else None

    def _places(self, site: int, size: bool, total: bool, grad: bool) -> tuple[int, ...]:
        wanted = ((STREAM, size), (STREAM_SUM, total), (STREAM_GRAD, grad))
        return tuple(row * self._count + site for row, want in wanted if want)

    def _resize(self, index: int, tensor: Tensor) -> None:
        if self.shapes[index] is None:
            self._first_heard(index, tensor)
        self.shapes[index], self._sizes[index] = tensor.shape, tensor.numel()

    def _first_heard(self, index: int, tensor: Tensor) -> None:
        if not self.order:
            self._entry = index
        self.order.append(index)
        self.entered()
        if self.taps[index].of_input:
            if self._last is not None and self._last[1]() is tensor:
                self.passed_on[index] = self._last[0]
            other, known = self._inputs.get(id(tensor), (index, None))
            if known is not None and known() is tensor:
                self.shared[index] = other
            self._inputs[id(tensor)] = index, weakref.ref(tensor)
        self._last = index, weakref.ref(tensor)

    def _give_up(self, index: int, error: Exception) -> None:
        self.trouble.setdefault(index, f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}")


def _on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
    """`tensor.register_hook(hook)`, without a handle, which would cost several times what the hook itself does."""
    base = tensor._base if tensor._is_view() else None
    if base is not None and base.numel() == tensor.numel() and base.grad_fn is not None:
        # A linear layer's output is a view. If it is changed in place later, its own hook hears only a part of
        # what it should; the whole goes to what it is a view of, with the same numbers in it.
        tensor = base
    if tensor._backward_hooks is None and tensor.grad_fn is not None:
        try:
            tensor._backward_hooks = OrderedDict(((_OURS, hook),))
            tensor.grad_fn._register_hook_dict(tensor)
            return
        except (AttributeError, TypeError):  # another version of torch
            tensor._backward_hooks = None
    tensor.register_hook(hook)


def _output(listen: Callable[[Any], None]) -> Callable[..., None]:
    def after(_module: nn.Module, _args: Any, output: Any) -> None:
        # Inside a compiled graph a hook would break it in two; the compiler sees an empty one.
        if not torch.compiler.is_compiling():
            listen(output)

    return after


def _input(listen: Callable[[Any], None]) -> Callable[..., None]:
    def before(_module: nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            listen((args, kwargs))

    return before


def is_second_order() -> bool:
    """Whether `torch.autograd.grad` has asked for the backward pass that runs now, keeping its graph.

    Such a gradient becomes a part of a loss (a gradient penalty, a force); it is none that trains the model.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("grad", "backward") and Path(code.co_filename).parent == _AUTOGRAD:
            return code.co_name == "grad"
        frame = frame.f_back
    return False  # a GPU's gradients come in a thread of their own


def by_signal(error: BaseException) -> bool:
    """Whether a signal handler has raised it: then it is meant for the script."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _stream_of(found: Any) -> Tensor | None:
    """Of several tensors the first that gradients flow through: a mask may come before it."""
    tensors = list(tensors_in(found))
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
