"""Hooks on modules and tensors that change nothing and leave no trace.

`copy.deepcopy`, pickling and `torch.save` of a module also copy its hooks. The probe's hooks measure one living
model: a copy of them would measure the copy, too, or fail to be pickled, or need gradtui to be loaded. So each
table of hooks gets a `__reduce_ex__` that leaves them out.
"""

from __future__ import annotations

import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_AUTOGRAD = Path(torch.autograd.__file__).parent
_OUR_ID = -1  # torch numbers hooks from 0


class Removable(Protocol):
    """Something attached to a module."""

    def remove(self) -> None:
        """Detach it."""


def on_call(module: nn.Module, callback: Callable[[Any], None], *, of_input: bool) -> Removable:
    """Call `callback` at each call of `module`: with its output, or before it with its (args, kwargs).

    Works for a module compiled in place, too. Inside the graph of a compiled outer module nothing is called: a
    hook would break the graph in two.
    """
    if module._compiled_call_impl is not None:
        return _CompiledCall(module, callback, of_input)

    def before(_module: nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            callback((args, kwargs))

    def after(_module: nn.Module, _args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            callback(output)

    if not of_input:
        return _Hook(module.register_forward_hook(after), module._forward_hooks)
    handle = module.register_forward_pre_hook(before, with_kwargs=True)
    # An id left behind in the second table of a copy would give kwargs to the next hook that gets this id.
    return _Hook(handle, module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)


def on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
    """Like `tensor.register_hook(hook)` for a tensor that is no leaf, but without a handle.

    Making the handle would cost several times what the hook itself does.
    """
    base = tensor._base if tensor._is_view() else None
    if base is not None and base.numel() == tensor.numel() and base.grad_fn is not None:
        # A linear layer's output is a view. If it is changed in place later, its own hook gets only a part of the
        # gradient; the whole goes to the tensor that it is a view of, with the same numbers in it.
        tensor = base
    if tensor._backward_hooks is None and tensor.grad_fn is not None:
        try:
            tensor._backward_hooks = OrderedDict(((_OUR_ID, hook),))
            tensor.grad_fn._register_hook_dict(tensor)
            return
        except (AttributeError, TypeError):  # another version of torch
            tensor._backward_hooks = None
    tensor.register_hook(hook)


def is_second_order() -> bool:
    """Whether the backward pass that runs now comes from `torch.autograd.grad`.

    Asked only where that pass keeps its graph: such a gradient becomes a part of a loss (a gradient penalty, a
    force) and does not train the model. On a GPU, whose gradients come in a thread of their own, the answer is
    always False.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("grad", "backward") and Path(code.co_filename).parent == _AUTOGRAD:
            return code.co_name == "grad"
        frame = frame.f_back
    return False


def is_from_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler of the script has raised `error`: then it is meant for the script."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


class _CopyWithoutOurs:
    """The `__reduce_ex__` of one table of hooks: a copy has all hooks but the probe's."""

    def __init__(self, table: dict[int, Any]) -> None:
        self.table = table
        self.ours: set[int] = set()

    def __call__(self, _protocol: int) -> tuple[Any, ...]:
        others = [item for item in self.table.items() if item[0] not in self.ours]
        return OrderedDict, (), None, None, iter(others)


class _Hook:
    """One hook of the probe's, registered in one or several tables of a module."""

    def __init__(self, handle: RemovableHandle, *tables: dict[int, Any]) -> None:
        self._handle, self._tables = handle, tables
        for table in tables:
            # The tables are OrderedDicts, which have attributes, and copy and pickle ask the instance first.
            vars(table).setdefault("__reduce_ex__", _CopyWithoutOurs(table)).ours.add(handle.id)

    def remove(self) -> None:
        """Remove the hook; a table without hooks of the probe's is copied as ever."""
        self._handle.remove()
        for table in self._tables:
            reduce = vars(table).get("__reduce_ex__")
            if reduce is not None:
                reduce.ours.discard(self._handle.id)
                if not reduce.ours:
                    del vars(table)["__reduce_ex__"]


class _CompiledCall:
    """Wraps the call of a module compiled in place (`module.compile()`), whose hooks would be part of its graph.

    Copies and pickles leave a compiled call out by themselves.
    """

    def __init__(self, module: nn.Module, callback: Callable[[Any], None], of_input: bool) -> None:
        self._module = module
        self._call = call = module._compiled_call_impl
        assert call is not None

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if of_input:
                callback((args, kwargs))
            output = call(*args, **kwargs)
            if not of_input:
                callback(output)
            return output

        self._wrapped = module._compiled_call_impl = wrapped

    def remove(self) -> None:
        """Put the plain call back, unless the module has been compiled anew."""
        if self._module._compiled_call_impl is self._wrapped:
            self._module._compiled_call_impl = self._call
