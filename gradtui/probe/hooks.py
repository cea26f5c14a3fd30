"""Forward hooks that leave no trace in copies of a module.

`copy.deepcopy`, pickling and `torch.save` of a module also copy its hooks. Ours measure one living model: a
copy of them would measure the copy too, or fail to be pickled, or need gradtui to be loaded. So the hooks' table
is told how to copy itself: without ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from torch import nn
from torch.utils.hooks import RemovableHandle


class _PlainCopy:
    """Stands in for `__reduce_ex__` of one hooks table: a copy holds everybody's hooks but ours."""

    def __init__(self, table: dict[int, Callable[..., Any]]) -> None:
        self.table = table
        self.ours: set[int] = set()

    def __call__(self, _protocol: int) -> tuple[Any, ...]:
        theirs = [item for item in self.table.items() if item[0] not in self.ours]
        return OrderedDict, (), None, None, iter(theirs)


class Removable(Protocol):
    """Something of ours on a module."""

    def remove(self) -> None:
        """Take it away."""


class Hook:
    """One hook of ours on a module; `remove` takes it away together with everything that it brought."""

    def __init__(self, handle: RemovableHandle, *tables: OrderedDict[int, Any]) -> None:
        self._handle, self._tables = handle, tables
        for table in tables:
            # An OrderedDict has attributes of its own, and copy and pickle ask the instance first.
            keeper = vars(table).setdefault("__reduce_ex__", _PlainCopy(table))
            keeper.ours.add(handle.id)

    def remove(self) -> None:
        """Take the hook away; the table copies itself as ever once none of ours is left."""
        self._handle.remove()
        for table in self._tables:
            keeper = vars(table).get("__reduce_ex__")
            if keeper is not None:
                keeper.ours.discard(self._handle.id)
                if not keeper.ours:
                    del vars(table)["__reduce_ex__"]


def on_output(module: nn.Module, hook: Callable[..., None]) -> Hook:
    """Call `hook(module, args, output)` after every forward."""
    return Hook(module.register_forward_hook(hook), module._forward_hooks)  # type: ignore[arg-type]


def on_input(module: nn.Module, hook: Callable[..., None]) -> Hook:
    """Call `hook(module, args, kwargs)` before every forward."""
    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
    # Left behind in a copy, a number in the second table would give kwargs to whoever is given that number next.
    return Hook(handle, module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)  # type: ignore[arg-type]


class _CompiledCall:
    """A module compiled in place (`module.compile()`): its hooks are part of the graph, so the call is wrapped.

    Copies and pickles leave a compiled call behind by themselves.
    """

    def __init__(self, module: nn.Module, listen: Callable[[Any], None], of_input: bool) -> None:
        self._module = module
        self._call = call = module._compiled_call_impl

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if of_input:
                listen((args, kwargs))
            output = call(*args, **kwargs)  # type: ignore[misc]
            if not of_input:
                listen(output)
            return output

        self._wrapped = module._compiled_call_impl = wrapped

    def remove(self) -> None:
        """Put the plain call back, unless somebody has compiled the module anew."""
        if self._module._compiled_call_impl is self._wrapped:
            self._module._compiled_call_impl = self._call


def on_compiled_call(module: nn.Module, listen: Callable[[Any], None], *, of_input: bool) -> Removable:
    """Have `listen` hear what a module compiled in place is given, or returns."""
    return _CompiledCall(module, listen, of_input)
