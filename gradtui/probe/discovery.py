"""Finds what to measure in a model that nobody has measured_sites: its residual blocks, and everything around them.

A stack of residual blocks is a list of like modules that hand a tensor of one shape from each to the next.
Whether they do is only known once a forward pass has been heard: `find_candidates` says where to listen during the first
one, `resolve_sites` decides afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.nn import Parameter
from torch.nn.utils import parametrize

from gradtui.probe.activations import ForwardTrace, HookPoint
from gradtui.probe.parameters import MEASURABLE
from gradtui.runs.schema import Site

Layers = str | Sequence[nn.Module | str] | Callable[..., bool] | None
# Put around a module by torch's own wrappers; nobody calls a layer by them.
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_LISTS = (nn.ModuleList, nn.Sequential)
_CONTAINERS = (*_LISTS, nn.ModuleDict)


class LayersError(ValueError):
    """The `layers` argument names nothing in this model; the message says what and what there is."""


@dataclass(frozen=True, slots=True)
class MeasuredSite:
    """A site, the parameters that are its own, and where its stream is heard (None: nowhere)."""

    site: Site
    parameters: tuple[Parameter, ...]
    tap: HookPoint | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Residual blocks, first to last; `name` is the path of their list."""

    name: str
    blocks: tuple[nn.Module, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a model consists of. `chosen` are the stacks that the user has named, `candidates` what may be one."""

    model: nn.Module
    names: Mapping[nn.Module, str]
    chosen: tuple[Stack, ...] | None
    candidates: tuple[Stack, ...]
    taps: tuple[HookPoint, ...]


def rebind_sites(
    model: nn.Module, places: Sequence[MeasuredSite], names: Mapping[nn.Module, str]
) -> tuple[tuple[MeasuredSite, ...], list[str]]:
    """The same sites in a model whose parts have been replaced since; `names` are those of its old modules.

    Also the names of parameters that belong to none of the sites.
    """
    now = {_plain(name): module for name, module in model.named_modules()}
    taken: set[Parameter] = set()
    found = []
    for place in places:
        tap = place.tap
        module = now.get(names.get(tap.module, place.site.name)) if tap is not None else None
        if tap is None or module is None:
            found.append(MeasuredSite(place.site, (), None))
            continue
        mine = () if tap.of_input else module.parameters() if place.site.kind == "block" else _own(module)
        parameters = tuple(p for p in mine if p not in taken and p.dtype in MEASURABLE)
        taken.update(parameters)
        found.append(MeasuredSite(place.site, parameters, replace(tap, module=module)))
    new = [_plain(name) for name, p in model.named_parameters() if p not in taken and p.dtype in MEASURABLE]
    return tuple(found), new


def measured_sites(sites: Iterable[tuple[Site, nn.Module]]) -> tuple[MeasuredSite, ...]:
    """Places of a model that knows its own sites: each with the module whose parameters and output are its own."""
    return tuple(MeasuredSite(site, tuple(module.parameters()), HookPoint(module)) for site, module in sites)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, DistributedDataParallel and the like."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def find_candidates(model: nn.Module, layers: Layers = None) -> Candidates:
    """Look over `model` (unwrapped); raises LayersError where `layers` names nothing in it."""
    names = {module: _plain(name) for name, module in model.named_modules()}
    if layers is not None:
        chosen = tuple(_stacks_of(_named(model, names, layers), names))
        taps = [HookPoint(stack.blocks[0], of_input=True) for stack in chosen]
        taps += [HookPoint(block) for stack in chosen for block in stack.blocks]
        taps += [HookPoint(module) for module in _outside(model, chosen)]
        return Candidates(model, names, chosen, (), tuple(dict.fromkeys(taps)))
    candidates = tuple(_candidates(model, names))
    blocks = list(dict.fromkeys(block for stack in candidates for block in stack.blocks))
    owners = [module for module in model.modules() if _own(module)]
    taps = [tap for block in blocks for tap in (HookPoint(block, of_input=True), HookPoint(block))]
    taps += [HookPoint(module) for module in owners]
    return Candidates(model, names, None, candidates, tuple(dict.fromkeys(taps)))


def resolve_sites(found: Candidates, heard: ForwardTrace) -> tuple[MeasuredSite, ...]:
    """The places of a model in the order of its forward pass, after the first one was heard."""
    stacks = found.chosen if found.chosen is not None else _choose(found, heard)
    rank = {key: position for position, key in enumerate(heard.order)}
    defined = {module: position for position, module in enumerate(found.names)}

    def order(module: nn.Module) -> float:
        """By the first call; what was never called comes last, in order of definition."""
        return rank.get((module, False), len(rank) + defined[module])

    stacks = tuple(sorted(stacks, key=lambda stack: order(stack.blocks[0])))
    taken: set[Parameter] = set()

    def own(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
        mine = [p for p in parameters if p not in taken and p.dtype in MEASURABLE]
        taken.update(mine)
        return tuple(mine)

    # Tied weights belong to the first module that has them and is called, in order of definition.
    outside: dict[nn.Module, tuple[Parameter, ...]] = {}
    for module in sorted(_outside(found.model, stacks), key=lambda m: bool(rank) and (m, False) not in rank):
        owned = own(_own(module))
        if owned or (module, False) in rank or not rank:
            outside[module] = owned
    places: list[tuple[float, MeasuredSite]] = []
    layer = stream = 0
    several = len(stacks) > 1
    entries: dict[nn.Module, tuple[int, str]] = {}
    for stack in stacks:
        name = stack.name if several else ""
        first = HookPoint(stack.blocks[0], of_input=True)
        begin = order(stack.blocks[0])
        giver, _ = heard.passed_on.get(first.key, (None, False))
        if giver is not None and giver in outside and giver not in entries:
            entries[giver] = (stream, name)  # x_0 is what the embedding returns: one site, not two
        elif first.key in rank:
            site = Site(f"{stack.name or 'layers'} (input)", None, "input", stream, name)
            places.append((begin, MeasuredSite(site, (), first)))
        for block in stack.blocks:
            site = Site(found.names[block], layer, "block", stream + 1, name)
            places.append((begin, MeasuredSite(site, own(block.parameters()), HookPoint(block))))
            layer, stream = layer + 1, stream + 1
        stream += 1
    leaves = sorted(outside, key=order)
    for index, module in enumerate(leaves):
        depth = None if stacks else index
        heard_here = (module, False) in rank or not rank
        point, name = entries.get(module, (depth if heard_here else None, ""))
        site = Site(found.names[module] or type(module).__name__, depth, "module", point, name)
        share = module in entries  # of the stream; elsewhere the last dimension may be anything
        places.append((order(module), MeasuredSite(site, outside[module], HookPoint(module, share=share))))
    places.sort(key=lambda item: item[0])
    return tuple(place for _, place in places)


def is_compiled(model: nn.Module) -> bool:
    """Whether any of its modules is, as a whole or its methods."""
    return any(
        m._compiled_call_impl is not None
        or hasattr(m, "_orig_mod")
        or getattr(m, "_compiler_ctx", None) is not None  # Lightning compiles a module's methods
        for m in model.modules()
    )


def skipped(model: nn.Module) -> list[str]:
    """Parameters that have no gradient by their nature: integers, quantised weights."""
    return [_plain(name) for name, p in model.named_parameters() if p.dtype not in MEASURABLE]


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _own(module: nn.Module) -> list[Parameter]:
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
    return [module for module in model.modules() if module not in inside and _own(module)]


def _candidates(model: nn.Module, names: Mapping[nn.Module, str]) -> Iterator[Stack]:
    for module in model.modules():
        if isinstance(module, _CONTAINERS):
            blocks = tuple(dict.fromkeys(module.children()))
            kinds = {type(_core(block)) for block in blocks}
            if len(blocks) >= 2 and len(kinds) == 1 and any(True for b in blocks for _ in b.parameters()):
                yield Stack(names[module], blocks)


def _core(module: nn.Module) -> nn.Module:
    for wrapper in WRAPPERS:
        inner = getattr(module, wrapper, None)
        if isinstance(inner, nn.Module):
            return _core(inner)
    return module


def _choose(found: Candidates, heard: ForwardTrace) -> tuple[Stack, ...]:
    """The longest stacks, none within another; those whose blocks hand on the very tensor come first."""
    chains: list[Stack] = []
    alike: list[Stack] = []
    for stack in found.candidates:
        shapes = [(heard.shapes.get((b, True)), heard.shapes.get((b, False))) for b in stack.blocks]
        known = [(before, after) for before, after in shapes if before is not None and after is not None]
        if not heard.order:  # nothing was heard at all (a compiled model): judge by structure
            if not isinstance(_core(stack.blocks[0]), _LEAVES):
                alike.append(stack)
        elif known and all(before == after for before, after in known):
            links = sum((b, True) in heard.passed_on for b in stack.blocks[1:])
            mine = {(b, True) for b in stack.blocks}
            if any(heard.shared.get(key) in mine and key not in heard.passed_on for key in mine):
                continue  # side by side: heads, experts
            (chains if 2 * links >= len(stack.blocks) - 1 else alike).append(stack)
    chosen: list[Stack] = []

    def choose(stacks: Iterable[Stack]) -> None:
        chosen.extend(s for s in stacks if not any(_nested(s, other) for other in chosen))

    for stack in sorted(chains, key=_length):
        choose([stack])
    if chosen:  # a decoder between whose blocks something is added is still one: its blocks are of a known kind
        known_kinds = {type(_core(stack.blocks[0])) for stack in chosen}
        alike = [stack for stack in alike if type(_core(stack.blocks[0])) in known_kinds]
    for stack in sorted(alike, key=lambda s: (s.name.count("."), _length(s))):
        choose([stack])
    return tuple(chosen)


# A list of these is no stack of residual blocks unless a forward pass has shown it to be one.
_LEAVES = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.BatchNorm2d)


def _length(stack: Stack) -> int:
    return -len(stack.blocks)


def _nested(one: Stack, other: Stack) -> bool:
    mine = {module for block in one.blocks for module in block.modules()}
    theirs = {module for block in other.blocks for module in block.modules()}
    return not mine.isdisjoint(theirs)


def _named(model: nn.Module, names: Mapping[nn.Module, str], layers: Layers) -> list[nn.Module]:
    """The modules that the user means by `layers`."""
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
