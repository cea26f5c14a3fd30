"""The public probe: measures any model at each step of its training, and records it in a run file."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.optim import Optimizer

from gradtui.probe.discovery import Layers, unwrapped
from gradtui.probe.losses import as_loss
from gradtui.probe.observer import StepObserver, describe
from gradtui.probe.optimizers import inner_optimizer
from gradtui.probe.options import (
    ProbeOptions,
    check_model,
    choose_metrics,
    default_name,
    run_path,
    several_optimizers,
    whole_number,
)
from gradtui.probe.recorder import warn


class Probe:
    """Measures gradients, activations and updates of `model`, by layer, at every step of `optimizer`.

        with gradtui.Probe(model, optimizer) as probe:
            for batch in loader:
                ...
                probe.log(loss=loss)  # optional

    It measures from the moment it is made. With an optimizer (or several: a step is then complete once each has
    stepped) it measures by itself, so gradient accumulation counts once; without one, call `step()` after
    backward.

    `run` is the run file to write (default: a new one in gradtui's data directory); `layers` a path such as
    "transformer.h", a list of modules, or a predicate of (name, module), default: the residual blocks that are
    found; `metrics` some of grad_norm, act_rms, stream_grad, weight_norm, update_ratio, mean_share, clipped_norm,
    default: all but mean_share, clipped_norm where gradients are clipped, and weight_norm and update_ratio at each
    of the first five steps and every tenth later (name them to have them at every step);
    `every` measures each k-th step only; `keep` bounds the file to that many steps in full, older ones thinned.

    For those who build on it: `facts` are noted in the run file, `log_first` says whether losses are logged before
    their step (default: as the first one is), and without `until_exit` the end of the interpreter closes nothing.

    `path` is the run file, `name` what the run is called. Raises RunError where the run file exists or cannot be
    made, LayersError (a ValueError) where `layers` names nothing, ValueError or TypeError for other arguments.
    After that it never raises and never changes what is computed: what it cannot do is a ProbeWarning and a
    sentence in the run file, and training goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Iterable[Optimizer] | None = None,
        *,
        run: str | os.PathLike[str] | None = None,
        layers: Layers = None,
        metrics: Sequence[str] | None = None,
        every: int = 1,
        name: str | None = None,
        keep: int | None = None,
        facts: Mapping[str, Any] | None = None,
        log_first: bool | None = None,
        until_exit: bool = True,
    ) -> None:
        check_model(model)
        inner = unwrapped(model)
        self.name = name or default_name(inner)
        self.path = run_path(run, self.name)
        options = ProbeOptions(
            name=self.name,
            path=self.path,
            metrics=choose_metrics(inner, metrics),
            every=whole_number("every", every),
            keep=None if keep is None else whole_number("keep", keep),
            facts=dict(facts or {}),
            log_first=log_first,
        )
        self._observer = StepObserver(model, layers, options)
        for one in several_optimizers(optimizer):
            self.adopt(one)
        self.attach()
        _living.add(self)
        self._close_at_exit = partial(_close_at_exit, weakref.ref(self))
        if until_exit:
            atexit.register(self._close_at_exit)

    def attach(self) -> None:
        """Measure (again)."""
        self._observer.attach()

    def detach(self) -> None:
        """Stop measuring; neither model nor optimizer carries a trace. The run stays open for `attach`."""
        self._observer.detach()

    def adopt(self, optimizer: Optimizer) -> None:
        """Measure at the steps of this optimizer too. Raises RuntimeError once the first step was measured."""
        self._observer.add(inner_optimizer(optimizer))

    def step(self) -> None:
        """Measure now: after backward, in a loop whose optimizer the probe does not know.

        How far the update moved the weights is known at the next call.
        """
        if self._observer.has_optimizer:
            warn("this probe measures at its optimizer's steps by itself; leave probe.step() out")
        else:
            self._observer.measure_now()

    def log(self, *, loss: Tensor | float | None = None, **others: object) -> None:
        """Record the step's loss: a number, or a tensor, which is not waited for.

        Before the optimizer's step or after it; several before one step (gradient accumulation) are averaged.
        Of anything else that is logged a ProbeWarning says that it is not recorded.
        """
        if self._observer.is_closed:
            return
        if others:
            self._observer.cannot_see(f"only the loss is recorded, not {', '.join(others)}")
            if loss is None:
                return
        try:
            value = as_loss(loss)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            self._observer.cannot_see(f"a loss cannot be recorded: {error}")
            return
        self._observer.log(value)

    def close(self, status: str | None = None, reason: str = "") -> None:
        """Detach and finish the run file; `status` is done unless said otherwise. A second call does nothing."""
        atexit.unregister(self._close_at_exit)
        self._observer.close(status, reason)

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped", "interrupted")
        else:
            self.close("failed", describe(error))

    def _abandon(self) -> None:
        self._observer.abandon()


_living: weakref.WeakSet[Probe] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """A forked child has no recorder thread, so its model gets no probe."""
    for probe in list(_living):
        probe._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)


def _close_at_exit(reference: weakref.ref[Probe]) -> None:
    """Close a probe that is still open when the interpreter ends."""
    probe = reference()
    if probe is None:
        return
    error = getattr(sys, "last_value", None)
    if error is None:
        probe.close()
    else:
        probe.close("failed", describe(error))
