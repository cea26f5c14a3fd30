"""Measures parameters: their gradients, before and after clipping, their norms, and how far a step moved them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from gradtui.probe.accumulator import DELTA, GRAD, WEIGHT, StepAccumulator

_VERSION = attrgetter("_version")
_norm = torch.linalg.vector_norm
_HALF = frozenset({torch.float16, torch.bfloat16})
_PLAIN = frozenset({Tensor, Parameter})
MEASURABLE = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
)
LOOK_EVERY = 4  # steps
FLAT_ELEMENTS = 1 << 20


class _Site:
    """The parameters of one site.

    Where they are `flat` (small, plain, alike), they are copied side by side into `vector`, which all sites share
    because it then stays in the cache: one reduction of it is cheaper than one per parameter. Large tensors gain
    nothing by that and would need the memory twice.
    """

    def __init__(self, index: int, parameters: Sequence[Parameter], scratch: dict[Any, Tensor]) -> None:
        self.index = index
        self.precise = True  # until it is known that single precision can hold the squares of its gradients
        self.parameters = list(parameters)
        self.count = len(self.parameters)
        size = sum(p.numel() for p in parameters)
        kinds = {(p.dtype, p.device) for p in parameters}
        self.flat = size <= FLAT_ELEMENTS and len(kinds) == 1 and all(type(p) in _PLAIN for p in parameters)
        self.before: list[Tensor] = []  # the weights before the step, as one vector if flat
        self.norms: list[Tensor] = []  # and their norms
        self.size, self.kind = size, next(iter(kinds))
        self._scratch = scratch
        if self.flat:
            known = scratch.get(self.kind)
            if known is None or known.numel() < size:
                scratch[self.kind] = torch.empty(size, dtype=self.kind[0], device=self.kind[1])

    def lay_out(self) -> None:
        """Once the shared memory has its size: this site's views of it."""
        if self.flat:
            self.vector = self._scratch[self.kind][: self.size]
            parts = self.vector.split([p.numel() for p in self.parameters])
            self.views = [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def gradients(self) -> list[Tensor]:
        """Norms that make up the gradient of the site; none if no parameter has one."""
        grads = [grad for p in self.parameters if (grad := p.grad) is not None]
        if self.precise and self.kind[1].type != "mps":
            return [_norm(local(grad), dtype=torch.promote_types(grad.dtype, torch.float64)) for grad in grads]
        if self.flat and len(grads) == self.count:
            try:
                torch._foreach_copy_(self.views, grads)
                return [_norm_of(self.vector)]
            except (RuntimeError, NotImplementedError):  # a sparse gradient, say
                pass
        return norms_of([local(grad) for grad in grads])

    def weights(self, tensors: Sequence[Tensor] = ()) -> list[Tensor]:
        """Norms that make up the weights, or `tensors` instead; `vector` holds them afterwards, if flat."""
        weights = list(tensors or self.parameters)
        if self.flat:
            torch._foreach_copy_(self.views, weights)
            return [_norm_of(self.vector)]
        return norms_of([local(p) for p in weights])

    def remember(self, tensors: Sequence[Tensor] = ()) -> None:
        """Keep the weights as they are now, or as `tensors` say."""
        self.norms = self.weights(tensors)
        kept = [self.vector] if self.flat else [local(p) for p in tensors or self.parameters]
        if self.before:
            torch._foreach_copy_(self.before, kept)
        else:
            self.before = [tensor.clone() for tensor in kept]

    def drift(self) -> Tensor | None:
        """How far the weights are from those remembered."""
        if not self.before or not self.flat:
            return None
        self.weights()
        return _norm_of(self.vector.sub_(self.before[0]))

    def moved(self) -> tuple[list[Tensor], list[Tensor]]:
        """Norms of the weights that were remembered, and of how far they have moved; remembers the new ones."""
        norms = self.norms
        self.norms = self.weights()
        if self.flat:
            [before] = self.before
            deltas = [_norm_of(before.sub_(self.vector))]
            before.copy_(self.vector)
        else:
            new = [local(p) for p in self.parameters]
            torch._foreach_sub_(self.before, new)
            deltas = norms_of(self.before)
            torch._foreach_copy_(self.before, new)
        return norms, deltas


class ParameterMeter:
    """The parameters that one optimizer moves, by site.

    Call, at every measured step: `read_gradients` after backward (and `read_clipped` if they have been clipped
    since), `before_step`, `after_step`. `groups` holds each site's index and parameters.
    """

    def __init__(
        self, groups: Iterable[tuple[int, Sequence[Parameter]]], sites: int, rows: frozenset[int]
    ) -> None:
        self._count = sites
        self._rows = rows
        scratch: dict[Any, Tensor] = {}
        self._sites = [_Site(index, parameters, scratch) for index, parameters in groups]
        for site in self._sites:
            site.lay_out()
        self._parameters = [p for site in self._sites for p in site.parameters]
        self._plain = [p for p in self._parameters if type(p) in _PLAIN]
        self.restless = False  # somebody writes to the weights between steps, unseen: remember them every time
        self._turn = 0
        self._known: tuple[int, int] | None = None

    @property
    def parameters(self) -> list[Parameter]:
        """All parameters, site by site."""
        return self._parameters

    def mind(self, precise: Collection[int], drift: float) -> None:
        """Take a hint from what has arrived: the sites to sum more precisely, and whether weights have drifted."""
        for site in self._sites:
            site.precise = site.index in precise
        self.restless = self.restless or drift > 0

    def read_gradients(self, tally: StepAccumulator, row: int = GRAD) -> None:
        """Take the gradients as they are now into `row`."""
        if row not in self._rows:
            return
        values, places, base = tally.values, tally.places, row * self._count
        with without_graph():
            for site in self._sites:
                norms = site.gradients()
                values += norms
                places += [base + site.index] * len(norms)

    def before_step(self, weights: Mapping[Parameter, Tensor] | None = None) -> Tensor | None:
        """Know the parameters as they are before the step, or as `weights` says that they were.

        Where nobody seems to have changed them since the last step, one site is looked at now and then, each in
        its turn: returns how far its weights are from those remembered. Writing to `parameter.data` leaves no
        other trace.
        """
        if DELTA not in self._rows or not self._sites:
            return None
        if weights is None and not self.restless and self._state() == self._known:
            self._turn += 1
            if self._turn % LOOK_EVERY:
                return None
            with without_graph():
                return self._sites[self._turn // LOOK_EVERY % len(self._sites)].drift()
        # Somebody else has changed the weights since the last measured step, or this is the first.
        with without_graph():
            for site in self._sites:
                site.remember([weights[p] for p in site.parameters] if weights else ())
        return None

    def after_step(self, tally: StepAccumulator) -> None:
        """Take the weights from before the step, and how far it moved them."""
        if WEIGHT not in self._rows:
            return
        values, places, count = tally.values, tally.places, self._count
        with without_graph():
            for site in self._sites:
                norms, deltas = site.moved() if DELTA in self._rows else (site.weights(), [])
                values += norms
                values += deltas
                places += [WEIGHT * count + site.index] * len(norms) + [DELTA * count + site.index] * len(deltas)
        self._known = self._state()

    def _state(self) -> tuple[int, int]:
        """Changes whenever somebody changes a parameter, in place (versions only grow) or by other memory."""
        return sum(map(_VERSION, self._parameters)), sum(map(Tensor.data_ptr, self._plain))


class without_graph:  # noqa: N801
    """`torch.no_grad()` without its ceremony, which costs a cold Python tens of microseconds a step."""

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *_error: object) -> None:
        torch._C._set_grad_enabled(self._before)


def norms_of(tensors: list[Tensor]) -> list[Tensor]:
    """The 2-norm of each tensor; of half precision in single, which can hold the square of 300."""
    if len(tensors) < 2 or any(tensor.dtype in _HALF for tensor in tensors):
        return [_norm_of(tensor) for tensor in tensors]
    return list(torch._foreach_norm(tensors))


def _norm_of(tensor: Tensor) -> Tensor:
    wide = torch.float32 if tensor.dtype in _HALF else None
    norm: Tensor = _norm(tensor, dtype=wide)
    return norm


def local(tensor: Tensor) -> Tensor:
    """The numbers of a tensor that are in this process, as a plain dense tensor."""
    if type(tensor) not in _PLAIN and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        return tensor.coalesce().values()
    return tensor.detach()
