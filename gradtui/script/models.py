"""Finds the model that an optimizer trains."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence, Set

from torch import Tensor, nn
from torch.optim import Optimizer


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All that the optimizer changes; nothing if it has not been made completely."""
    groups = getattr(optimizer, "param_groups", [])
    return [p for group in groups for p in group["params"]]


def identities(tensors: Iterable[Tensor]) -> set[int]:
    """What tells tensors apart; they compare by value."""
    return set(map(id, tensors))


def model_of(
    wanted: Sequence[Tensor], foreign: Set[int] = frozenset(), called: nn.Module | None = None
) -> nn.Module | None:
    """The model that `wanted`, an optimizer's parameters, belong to; None if they belong to no module at all.

    `called` is the outermost module that is being called right now: if all of `wanted` is in it, it is the model.
    Else it is the outermost living module that holds all of them and none of `foreign`, the identities of other
    optimizers' parameters; or where the script holds them in several modules, one that is made of these.
    """
    ids = identities(wanted)
    if called is not None and ids <= identities(called.parameters()):
        return called
    owners = []
    for module in _living_modules():
        inside = identities(module.parameters())
        if ids & inside:
            owners.append((module, inside))
    covering = [(module, inside) for module, inside in owners if ids <= inside]
    if covering:
        alone = [item for item in covering if not item[1] & foreign]
        # Of those that train something else, too, the smallest; else the largest.
        size = max(len(inside) for _, inside in alone) if alone else min(len(inside) for _, inside in covering)
        equals = [module for module, inside in alone or covering if len(inside) == size]
        return _outermost(equals)[0]
    parts = _outermost([module for module, inside in owners if not inside & foreign] or [m for m, _ in owners])
    held = {key for part in parts for key in identities(part.parameters())}
    bare = [p for p in wanted if id(p) not in held and isinstance(p, nn.Parameter)]
    return Together(parts, bare) if parts or bare else None


class Together(nn.Module):
    """Several modules, and parameters of no module, that one optimizer trains; nobody calls it."""

    def __init__(self, parts: Sequence[nn.Module], bare: Sequence[nn.Parameter] = ()) -> None:
        super().__init__()
        for number, part in enumerate(parts, start=1):
            self.add_module(self._free(name_of(part) or f"{type(part).__name__.lower()}{number}"), part)
        for number, parameter in enumerate(bare, start=1):
            self.add_module(self._free(name_of(parameter) or f"parameter{number}"), _Bare(parameter))

    def _free(self, name: str) -> str:
        free, number = name, 2
        while hasattr(self, free):
            free, number = f"{name}_{number}", number + 1
        return free


class _Bare(nn.Module):
    def __init__(self, parameter: nn.Parameter) -> None:
        super().__init__()
        self.parameter = parameter


def _living_modules() -> Iterator[nn.Module]:
    # type() and not isinstance(): a proxy somewhere in memory would be made to load what it stands for.
    for thing in gc.get_objects():
        if issubclass(type(thing), nn.Module) and "_parameters" in thing.__dict__:
            yield thing


def _outermost(modules: Sequence[nn.Module]) -> list[nn.Module]:
    inner = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in inner]


def name_of(thing: object) -> str:
    """What the script calls `thing`: a variable of a running function or its module, an attribute of `self`."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    for frame in reversed(frames):  # the script itself has better names than what it calls
        own = str(frame.f_globals.get("__name__", ""))
        if not own.startswith(("gradtui.", "torch.")):
            for space in (frame.f_locals, vars(frame.f_locals.get("self", Together)), frame.f_globals):
                for name, value in list(space.items()):
                    if value is thing and name != "self":
                        return str(name).replace(".", "_")
    return ""
