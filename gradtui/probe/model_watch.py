"""Notices what a training script changes about a model and its optimizers between steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer

from gradtui.probe.discovery import module_names
from gradtui.probe.parameters import MEASURABLE

# Whether parts of the model were replaced is looked at when the optimizers' groups change, and so often anyway.
CHECK_EVERY = 16  # checks


@dataclass(frozen=True, slots=True)
class Changed:
    """What has changed since the last check.

    `names` are the old modules' names where parts of the model were replaced, or the optimizers have got other
    parameters: then the sites are to be found anew. None: only layers were unfrozen.
    """

    names: Mapping[nn.Module, str] | None


class ModelWatch:
    """Watches `model` and its `optimizers`, a list that may still grow.

    `trainable` are the parameters that have needed gradients at any time. It is known from the beginning, not only
    at the first step: by then a script may have frozen what is not the turn of that step's optimizer.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers
        self.trainable: frozenset[Parameter] = frozenset()
        self._frozen: list[Parameter] = []
        self._names: Mapping[nn.Module, str] = module_names(model)
        self._look_around()

    def begin(self) -> None:
        """Report only what is replaced from now on."""
        self._parameters = list(self._model.parameters())
        self._group_sizes = self._sizes()
        self._checks = 0

    def check(self) -> Changed | None:
        """What has changed since the last check, or None."""
        if self._is_replaced():
            names, self._names = self._names, module_names(self._model)
            self._look_around()
            return Changed(names)
        unfrozen = [p for p in self._frozen if p.requires_grad]
        if not unfrozen:
            return None
        self.trainable |= set(unfrozen)
        self._frozen = [p for p in self._frozen if not p.requires_grad]
        return Changed(None)

    def owners(self) -> list[frozenset[Parameter]]:
        """The parameters of each optimizer; of one without any where there is no optimizer."""
        owners = [frozenset(p for g in o.param_groups for p in g["params"]) for o in self._optimizers]
        return owners or [frozenset()]

    def has_no_gradient(self) -> bool:
        """Whether no parameter has a gradient."""
        return all(p.grad is None for p in self._parameters)

    def _is_replaced(self) -> bool:
        self._checks += 1
        sizes = self._sizes()
        if sizes == self._group_sizes and self._checks % CHECK_EVERY:
            return False
        self._group_sizes = sizes
        known, self._parameters = self._parameters, list(self._model.parameters())
        return len(known) != len(self._parameters) or any(
            a is not b for a, b in zip(known, self._parameters, strict=True)
        )

    def _look_around(self) -> None:
        self.begin()
        self.trainable |= {p for p in self._parameters if p.requires_grad}
        self._frozen = [p for p in self._parameters if not p.requires_grad and p.dtype in MEASURABLE]

    def _sizes(self) -> list[int]:
        return [len(group["params"]) for optimizer in self._optimizers for group in optimizer.param_groups]
