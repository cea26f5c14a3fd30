"""Finds what to measure in an unknown model: its residual blocks, and every module around them.

A stack of residual blocks is a list of modules of one kind, each of which gets the output of the one before it, a
tensor of one shape. Whether it does is known only after a forward pass: `find_candidates` says where to hook the
model for the first one, `resolve_sites` decides afterwards, and `rebind_sites` finds the same sites again after
parts of the model were replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.nn import Parameter
from torch.nn.utils import parametrize

from gradtui.probe.parameters import MEASURABLE
from gradtui.probe.trace import ForwardTrace, HookPoint
from gradtui.runs.schema import Site

Layers = str | Sequence[nn.Module | str] | Callable[..., bool] | None
# Attributes under which torch's own wrappers keep a module; left out of the names of layers.
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_LISTS = (nn.ModuleList, nn.Sequential)
_CONTAINERS = (*_LISTS, nn.ModuleDict)
# A list of these is no stack of residual blocks unless a forward pass has shown that it is one.
_LEAVES = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.BatchNorm2d)


class LayersError(ValueError):
    """The `layers` argument names nothing in this model; the message says what and what there is."""


@dataclass(frozen=True, slots=True)
class MeasuredSite:
    """A site, the parameters that count as its own, and where its stream is measured (None: nowhere)."""

    site: Site
    parameters: tuple[Parameter, ...]
    point: HookPoint | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Residual blocks, first to last; `name` is the path of their list."""

    name: str
    blocks: tuple[nn.Module, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a model consists of.

    `names` are the paths of its modules, `chosen` the stacks that the argument `layers` names (None: not given),
    `possible` the lists that may be stacks, and `points` where to hook the model in its first forward pass.
    """

    model: nn.Module
    names: Mapping[nn.Module, str]
    chosen: tuple[Stack, ...] | None
    possible: tuple[Stack, ...]
    points: tuple[HookPoint, ...]


def find_candidates(model: nn.Module, layers: Layers = None) -> Candidates:
    """Look through `model` (unwrapped). Raises LayersError where `layers` names nothing in it."""
    names = module_names(model)
    if layers is not None:
        chosen = tuple(_stacks_of(_named(model, names, layers), names))
        points = [HookPoint(stack.blocks[0], of_input=True) for stack in chosen]
        points += [HookPoint(block) for stack in chosen for block in stack.blocks]
        points += [HookPoint(module) for module in _outside(model, chosen)]
        return Candidates(model, names, chosen, (), tuple(dict.fromkeys(points)))
    possible = tuple(_possible_stacks(model, names))
    blocks = dict.fromkeys(block for stack in possible for block in stack.blocks)
    points = [point for block in blocks for point in (HookPoint(block, of_input=True), HookPoint(block))]
    points += [HookPoint(module) for module in model.modules() if _own_parameters(module)]
    return Candidates(model, names, None, possible, tuple(dict.fromkeys(points)))


def resolve_sites(candidates: Candidates, trace: ForwardTrace) -> tuple[MeasuredSite, ...]:
    """The sites of a model in the order of its first forward pass, which `trace` has recorded."""
    rank = {key: position for position, key in enumerate(trace.shapes)}
    defined = {module: position for position, module in enumerate(candidates.names)}

    def order(module: nn.Module) -> float:
        """By the first call; what was never called comes last, in order of definition."""
        return rank.get((module, False), len(rank) + defined[module])

    def is_called(module: nn.Module) -> bool:
        """Whether the module was called; assumed where nothing was (a compiled model)."""
        return not rank or (module, False) in rank

    stacks = candidates.chosen if candidates.chosen is not None else _choose_stacks(candidates, trace)
    stacks = tuple(sorted(stacks, key=lambda stack: order(stack.blocks[0])))
    # Tied weights belong to the first module that has them and is called, in order of definition.
    unclaimed = _Unclaimed()
    around = {
        module: unclaimed.claim(_own_parameters(module))
        for module in sorted(_outside(candidates.model, stacks), key=lambda module: not is_called(module))
    }
    around = {module: own for module, own in around.items() if own or is_called(module)}

    sites: list[tuple[float, MeasuredSite]] = []
    entries: dict[nn.Module, tuple[int, str]] = {}  # modules whose output enters a stack: stream point and stack
    layer = stream = 0
    for stack in stacks:
        name = stack.name if len(stacks) > 1 else ""
        entry = HookPoint(stack.blocks[0], of_input=True)
        source, _ = trace.passed_on.get(entry.key, (None, False))
        if source is not None and source in around and source not in entries:
            entries[source] = (stream, name)  # x_0 is what the embedding returns: one site, not two
        elif entry.key in rank:
            site = Site(f"{stack.name or 'layers'} (input)", None, "input", stream, name)
            sites.append((order(stack.blocks[0]), MeasuredSite(site, (), entry)))
        for block in stack.blocks:
            site = Site(candidates.names[block], layer, "block", stream + 1, name)
            own = unclaimed.claim(block.parameters())
            sites.append((order(block), MeasuredSite(site, own, HookPoint(block))))
            layer, stream = layer + 1, stream + 1
        stream += 1
    for index, module in enumerate(sorted(around, key=order)):
        depth = None if stacks else index
        stream_point, name = entries.get(module, (depth if is_called(module) else None, ""))
        site = Site(candidates.names[module] or type(module).__name__, depth, "module", stream_point, name)
        # Where the output is no stream, its last dimension may be anything.
        point = HookPoint(module, measure_mean=module in entries)
        sites.append((order(module), MeasuredSite(site, around[module], point)))
    sites.sort(key=lambda item: item[0])
    return tuple(measured for _, measured in sites)


def rebind_sites(
    model: nn.Module, sites: Sequence[MeasuredSite], names: Mapping[nn.Module, str]
) -> tuple[tuple[MeasuredSite, ...], list[str]]:
    """The same sites in a model whose parts have been replaced since; `names` are those of its old modules.

    Also returns the names of parameters that belong to none of the sites.
    """
    modules = {name: module for module, name in module_names(model).items()}
    unclaimed = _Unclaimed()
    found = []
    for measured in sites:
        site, point = measured.site, measured.point
        module = modules.get(names.get(point.module, site.name)) if point is not None else None
        if point is None or module is None:
            found.append(MeasuredSite(site, (), None))
            continue
        own = () if point.of_input else module.parameters() if site.kind == "block" else _own_parameters(module)
        found.append(MeasuredSite(site, unclaimed.claim(own), replace(point, module=module)))
    added = [_plain(name) for name, p in model.named_parameters() if unclaimed.claim([p])]
    return tuple(found), added


def sites_of_modules(sites: Iterable[tuple[Site, nn.Module]]) -> tuple[MeasuredSite, ...]:
    """The sites of a model that knows them: each with the module whose parameters and output are its own."""
    return tuple(MeasuredSite(site, tuple(module.parameters()), HookPoint(module)) for site, module in sites)


def module_names(model: nn.Module) -> dict[nn.Module, str]:
    """The path of each module, without torch's wrappers."""
    return {module: _plain(name) for name, module in model.named_modules()}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, DistributedDataParallel and the like."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def is_compiled(model: nn.Module) -> bool:
    """Whether any of its modules is compiled, as a whole or its methods."""
    return any(
        m._compiled_call_impl is not None
        or hasattr(m, "_orig_mod")
        or getattr(m, "_compiler_ctx", None) is not None  # Lightning compiles a module's methods
        for m in model.modules()
    )


def unmeasurable_parameters(model: nn.Module) -> list[str]:
    """Parameters that have no gradient by their nature: integers, quantised weights."""
    return [_plain(name) for name, p in model.named_parameters() if p.dtype not in MEASURABLE]


class _Unclaimed:
    """The measurable parameters that belong to no site yet."""

    def __init__(self) -> None:
        self._taken: set[Parameter] = set()

    def claim(self, parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
        """Those of `parameters` that are measurable and not claimed yet; from now on they are."""
        mine = [p for p in parameters if p not in self._taken and p.dtype in MEASURABLE]
        self._taken.update(mine)
        return tuple(mine)


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _own_parameters(module: nn.Module) -> list[Parameter]:
    """The parameters of a module itself, without those of its parts; with what they are parametrised by."""
    if isinstance(module, (parametrize.ParametrizationList, nn.ParameterList, nn.ParameterDict)):
        return []
    parts = [m for m in module.children() if isinstance(m, (nn.ParameterList, nn.ParameterDict))]
    if parametrize.is_parametrized(module):
        parts.append(module.parametrizations)  # type: ignore[arg-type]
    return [*module.parameters(recurse=False), *(p for part in parts for p in part.parameters())]


def _outside(model: nn.Module, stacks: Sequence[Stack]) -> list[nn.Module]:
    """The modules outside all stacks that have parameters of their own, in order of definition."""
    inside = {module for stack in stacks for block in stack.blocks for module in block.modules()}
    return [module for module in model.modules() if module not in inside and _own_parameters(module)]


def _possible_stacks(model: nn.Module, names: Mapping[nn.Module, str]) -> Iterator[Stack]:
    """Lists of at least two modules of one kind with parameters."""
    for module in model.modules():
        if isinstance(module, _CONTAINERS):
            blocks = tuple(dict.fromkeys(module.children()))
            kinds = {type(_core(block)) for block in blocks}
            if len(blocks) >= 2 and len(kinds) == 1 and any(True for b in blocks for _ in b.parameters()):
                yield Stack(names[module], blocks)


def _core(module: nn.Module) -> nn.Module:
    """The module inside torch's wrappers."""
    for wrapper in WRAPPERS:
        inner = getattr(module, wrapper, None)
        if isinstance(inner, nn.Module):
            return _core(inner)
    return module


def _choose_stacks(candidates: Candidates, trace: ForwardTrace) -> tuple[Stack, ...]:
    """The longest stacks, none within another; first those where each block gets the very output of the last."""
    chains: list[Stack] = []
    others: list[Stack] = []
    for stack in candidates.possible:
        shapes = [(trace.shapes.get((b, True)), trace.shapes.get((b, False))) for b in stack.blocks]
        known = [(before, after) for before, after in shapes if before is not None and after is not None]
        if not trace.shapes:  # no hook was called (a compiled model): judge by structure
            if not isinstance(_core(stack.blocks[0]), _LEAVES):
                others.append(stack)
        elif known and all(before == after for before, after in known):
            links = sum((b, True) in trace.passed_on for b in stack.blocks[1:])
            inputs = {(b, True) for b in stack.blocks}
            if any(trace.shared.get(key) in inputs and key not in trace.passed_on for key in inputs):
                continue  # side by side: heads, experts
            (chains if 2 * links >= len(stack.blocks) - 1 else others).append(stack)
    chosen: list[Stack] = []

    def choose(stacks: Iterable[Stack]) -> None:
        for stack in stacks:
            if not any(_overlap(stack, other) for other in chosen):
                chosen.append(stack)

    choose(sorted(chains, key=_shortness))
    if chosen:  # a decoder between whose blocks something is added is still one: its blocks are of a known kind
        known_kinds = {type(_core(stack.blocks[0])) for stack in chosen}
        others = [stack for stack in others if type(_core(stack.blocks[0])) in known_kinds]
    choose(sorted(others, key=lambda stack: (stack.name.count("."), _shortness(stack))))
    return tuple(chosen)


def _shortness(stack: Stack) -> int:
    return -len(stack.blocks)


def _overlap(one: Stack, other: Stack) -> bool:
    mine = {module for block in one.blocks for module in block.modules()}
    theirs = {module for block in other.blocks for module in block.modules()}
    return not mine.isdisjoint(theirs)


def _named(model: nn.Module, names: Mapping[nn.Module, str], layers: Layers) -> list[nn.Module]:
    """The modules that the argument `layers` names."""
    if isinstance(layers, str):
        return list(_at(model, layers))
    if callable(layers):
        wants_name = len(inspect.signature(layers).parameters) >= 2
        chosen = [m for m, name in names.items() if (layers(name, m) if wants_name else layers(m))]
        if not chosen:
            raise LayersError("layers: the predicate is true of no module of this model")
        return chosen
    chosen = []
    for item in layers or ():
        if isinstance(item, str):
            chosen += _at(model, item)
        elif isinstance(item, nn.Module) and item in names:
            chosen.append(item)
        else:
            what = type(item).__name__
            raise LayersError(f"layers: a {what} in the list is not a module of this model; give its own modules")
    if not chosen:
        raise LayersError("layers is empty; give a path, a list of modules or a predicate")
    return chosen


def _at(model: nn.Module, path: str) -> Iterator[nn.Module]:
    try:
        module: Any = model
        for part in path.split("."):
            module = module[int(part)] if part.isdigit() and isinstance(module, _LISTS) else getattr(module, part)
    except (AttributeError, IndexError, KeyError):
        module = None
    if not isinstance(module, nn.Module):
        lists = [_plain(name) for name, m in model.named_modules() if isinstance(m, _CONTAINERS) and name]
        there = f"its lists of modules are: {', '.join(lists[:8])}" if lists else "it has no list of modules"
        raise LayersError(f"layers={path!r}: there is no such module in {type(model).__name__}; {there}")
    if isinstance(module, _CONTAINERS):
        yield from dict.fromkeys(module.children())
    else:
        yield module


def _stacks_of(modules: Sequence[nn.Module], names: Mapping[nn.Module, str]) -> Iterator[Stack]:
    """Modules in lists of their own make stacks of their own; nothing that lies within another one counts."""
    inner = {m for module in modules for m in module.modules() if m is not module}
    groups: dict[str, list[nn.Module]] = {}
    for module in dict.fromkeys(modules):
        if module not in inner:
            groups.setdefault(names[module].rpartition(".")[0], []).append(module)
    for name, blocks in groups.items():
        yield Stack(name, tuple(blocks))
