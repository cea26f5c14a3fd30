"""Measures parameters: their gradients before and after clipping, their norms, and how far a step moved them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from gradtui.probe.accumulator import DELTA, GRAD, GRAD_CLIPPED, WEIGHT, MeasuringHints

MEASURABLE = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
)
CHECK_EVERY = 4  # steps
FLAT_ELEMENTS = 1 << 20
_HALF = frozenset({torch.float16, torch.bfloat16})
_PLAIN = frozenset({Tensor, Parameter})
_norm = torch.linalg.vector_norm
_version = attrgetter("_version")


class ParameterMeter:
    """Measures the parameters that one optimizer moves, by site.

    Call, at every measured step: `read_gradients` after backward (and `read_clipped` if they have been clipped
    since), `before_step`, `after_step`, `take`. `groups` holds each site's index and parameters, `rows` what is to
    be measured.
    """

    def __init__(
        self,
        groups: Iterable[tuple[int, Sequence[Parameter]]],
        rows: frozenset[int],
        hints: MeasuringHints,
    ) -> None:
        self._rows, self._hints = rows, hints
        scratch: dict[Any, Tensor] = {}
        self._sites = [_SiteParameters(index, parameters, scratch) for index, parameters in groups]
        for site in self._sites:
            site.lay_out()
        self.parameters = [p for site in self._sites for p in site.parameters]
        self._plain = [p for p in self.parameters if type(p) in _PLAIN]
        self._values: list[Tensor] = []
        self._cells: list[int] = []
        self._steps_unchanged = 0
        self._state_after_step: tuple[int, int] | None = None

    def take(self) -> tuple[list[Tensor], list[int]]:
        """The numbers measured since the last call, and the cell of each (see `StepAccumulator`)."""
        taken = self._values, self._cells
        self._values, self._cells = [], []
        return taken

    def continue_from(self, earlier: ParameterMeter) -> None:
        """Begin with what `earlier`, a meter of the same sites, has measured in this step."""
        self._values, self._cells = earlier.take()

    def read_gradients(self) -> None:
        """Measure the gradients as they are now, before clipping."""
        self._read(GRAD)

    def read_clipped(self) -> None:
        """Measure the gradients once more, after clipping."""
        self._read(GRAD_CLIPPED)

    def _read(self, row: int) -> None:
        if row not in self._rows:
            return
        with NoGrad():
            for site in self._sites:
                self._add(row, site, site.gradient_norms(precise=site.index in self._hints.precise_sites))

    def before_step(self, weights: Mapping[Parameter, Tensor] | None = None) -> Tensor | None:
        """Keep the weights as they are before the step; `weights` are those of before it, where it is too late.

        Where they seem to be unchanged since the last step, they are already known; but at every fourth step one
        site, each in its turn, is checked: returns the norm of its change since then (writing to `parameter.data`
        leaves no other trace), else None.
        """
        if DELTA not in self._rows or not self._sites:
            return None
        if weights is None and not self._hints.weights_drift and self._state() == self._state_after_step:
            self._steps_unchanged += 1
            if self._steps_unchanged % CHECK_EVERY:
                return None
            with NoGrad():
                return self._sites[self._steps_unchanged // CHECK_EVERY % len(self._sites)].drift()
        # Something else has changed the weights since the last measured step, or this is the first.
        with NoGrad():
            for site in self._sites:
                site.remember([weights[p] for p in site.parameters] if weights else ())
        return None

    def after_step(self) -> None:
        """Measure the weights of before the step, and how far it moved them."""
        if WEIGHT not in self._rows:
            return
        with NoGrad():
            for site in self._sites:
                if DELTA in self._rows:
                    norms, changes = site.step_norms()
                    self._add(WEIGHT, site, norms)
                    self._add(DELTA, site, changes)
                else:
                    self._add(WEIGHT, site, site.weight_norms())
        self._state_after_step = self._state()

    def _add(self, row: int, site: _SiteParameters, norms: list[Tensor]) -> None:
        self._values += norms
        self._cells += [row * self._hints.sites + site.index] * len(norms)

    def _state(self) -> tuple[int, int]:
        """Differs after any change of a parameter in place (versions only grow) or of its memory."""
        return sum(map(_version, self.parameters)), sum(map(Tensor.data_ptr, self._plain))


class _SiteParameters:
    """The parameters of one site.

    Where they are `flat` (small, plain, alike), they are copied side by side into `vector`, which all sites share
    because it then stays in the cache: one reduction of it is cheaper than one per parameter. Large tensors gain
    nothing by that and would need the memory twice.
    """

    def __init__(self, index: int, parameters: Sequence[Parameter], scratch: dict[Any, Tensor]) -> None:
        self.index = index
        self.parameters = list(parameters)
        self._size = sum(p.numel() for p in parameters)
        kinds = {(p.dtype, p.device) for p in parameters}
        self._kind = next(iter(kinds))
        self._flat = self._size <= FLAT_ELEMENTS and len(kinds) == 1 and all(type(p) in _PLAIN for p in parameters)
        self._before: list[Tensor] = []  # the weights before the step, as one vector if flat
        self._norms_before: list[Tensor] = []
        self._scratch = scratch
        if self._flat:
            known = scratch.get(self._kind)
            if known is None or known.numel() < self._size:
                scratch[self._kind] = torch.empty(self._size, dtype=self._kind[0], device=self._kind[1])

    def lay_out(self) -> None:
        """Make this site's views of the shared memory, once that has its size."""
        if self._flat:
            self._vector = self._scratch[self._kind][: self._size]
            parts = self._vector.split([p.numel() for p in self.parameters])
            self._views = [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def gradient_norms(self, *, precise: bool) -> list[Tensor]:
        """Norms that make up the gradient of the site, none if no parameter has one; `precise`: in double."""
        grads = [grad for p in self.parameters if (grad := p.grad) is not None]
        if precise and self._kind[1].type != "mps":
            return [_norm(local(grad), dtype=torch.promote_types(grad.dtype, torch.float64)) for grad in grads]
        if self._flat and len(grads) == len(self.parameters):
            try:
                torch._foreach_copy_(self._views, grads)
                return [_norm_of(self._vector)]
            except (RuntimeError, NotImplementedError):  # a sparse gradient, say
                pass
        return norms_of([local(grad) for grad in grads])

    def weight_norms(self, tensors: Sequence[Tensor] = ()) -> list[Tensor]:
        """Norms that make up the weights, or `tensors` instead; `_vector` holds them afterwards, if flat."""
        weights = list(tensors or self.parameters)
        if self._flat:
            torch._foreach_copy_(self._views, weights)
            return [_norm_of(self._vector)]
        return norms_of([local(p) for p in weights])

    def remember(self, tensors: Sequence[Tensor] = ()) -> None:
        """Keep the weights as they are now, or as `tensors` say."""
        self._norms_before = self.weight_norms(tensors)
        kept = [self._vector] if self._flat else [local(p) for p in tensors or self.parameters]
        if self._before:
            torch._foreach_copy_(self._before, kept)
        else:
            self._before = [tensor.clone() for tensor in kept]

    def drift(self) -> Tensor | None:
        """The norm of the change of the weights since they were remembered; None where that would be costly."""
        if not self._before or not self._flat:
            return None
        self.weight_norms()
        return _norm_of(self._vector.sub_(self._before[0]))

    def step_norms(self) -> tuple[list[Tensor], list[Tensor]]:
        """Norms of the weights that were remembered, and of their change since; remembers the new ones."""
        norms = self._norms_before
        self._norms_before = self.weight_norms()
        if self._flat:
            [before] = self._before
            changes = [_norm_of(before.sub_(self._vector))]
            before.copy_(self._vector)
        else:
            new = [local(p) for p in self.parameters]
            torch._foreach_sub_(self._before, new)
            changes = norms_of(self._before)
            torch._foreach_copy_(self._before, new)
        return norms, changes


class NoGrad:
    """A cheaper `torch.no_grad()`, which takes tens of microseconds where its code is not in the cache."""

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


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is in this process, as a plain dense tensor."""
    if type(tensor) not in _PLAIN and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        return tensor.coalesce().values()
    return tensor.detach()


def _norm_of(tensor: Tensor) -> Tensor:
    wide = torch.float32 if tensor.dtype in _HALF else None
    norm: Tensor = _norm(tensor, dtype=wide)
    return norm
