"""The model that a probe measures: finds its sites, and keeps the meter on them while the model changes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from gradtui.probe.accumulator import StepAccumulator, rows_for
from gradtui.probe.activations import ActivationHooks, ActivationListener
from gradtui.probe.coverage import added_parameters
from gradtui.probe.discovery import (
    Layers,
    find_candidates,
    is_compiled,
    rebind_sites,
    resolve_sites,
    unwrapped,
)
from gradtui.probe.meter import Meter
from gradtui.probe.model_watch import ModelWatch

# If no hook was called by then, none will be: the model is compiled as a whole, or not called as a module.
MOST_STEPS_WAITED = 2


class MeasuredModel:
    """A model and, once its first forward pass has shown its sites, the `meter` on them.

    `given` is the model as the user has given it, `model` the one inside its wrappers. `optimizers` is a list that
    may grow until the sites are known. Raises LayersError where `layers` names nothing in the model.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        optimizers: Sequence[Optimizer],
        metrics: Sequence[str],
        listener: ActivationListener,
    ) -> None:
        self.given, self.model = model, unwrapped(model)
        self.meter: Meter | None = None
        self._listener = listener
        self._watch = ModelWatch(self.model, optimizers)
        self._candidates = find_candidates(self.model, layers)
        self._first_pass = ActivationHooks(self._candidates.points, rows_for(metrics), listener=listener)
        self._steps_waited = 0
        self._is_attached = False

    def attach(self) -> None:
        """Register the forward hooks."""
        self._is_attached = True
        self._hooks.attach()

    def detach(self) -> None:
        """Remove the forward hooks, and forget what this step has measured."""
        self._is_attached = False
        self._hooks.detach()
        self.take()

    def take(self) -> StepAccumulator:
        """All that this step has measured."""
        return self._hooks.take() if self.meter is None else self.meter.take()

    def find_sites(self, metrics: Sequence[str]) -> Meter | None:
        """Make the meter, if the first forward pass was seen or need not be waited for; else None."""
        seen = self._first_pass.trace
        can_wait = self._steps_waited < MOST_STEPS_WAITED and not self.is_compiled()
        if not seen.shapes and self._candidates.chosen is None and can_wait:
            self._steps_waited += 1
            return None
        sites = resolve_sites(self._candidates, seen)
        self._first_pass.detach()
        self.meter = meter = Meter(sites, metrics, self._watch.owners(), listener=self._listener)
        meter.set_trainable(self._watch.trainable)
        site_of = {site.point.key: index for index, site in enumerate(sites) if site.point is not None}
        moved = {
            hook.site: site_of[hook.point.key] for hook in self._first_pass.hooks if hook.point.key in site_of
        }
        meter.activations.take_over(self._first_pass, moved)
        if self._is_attached:
            meter.attach()
        self._watch.begin()
        return meter

    def refresh(self, step: int) -> list[str]:
        """Follow what was changed about the model since the last step; returns what then cannot be measured."""
        changed, old = self._watch.check(), self.meter
        if changed is None or old is None:
            return []
        if changed.names is None:
            old.set_trainable(self._watch.trainable)
            return []
        sites, added = rebind_sites(self.model, old.measured_sites, changed.names)
        self.meter = new = Meter(
            sites, old.metrics, self._watch.owners(), hints=old.hints, listener=self._listener
        )
        new.set_trainable(self._watch.trainable)
        new.continue_from(old)
        old.detach()
        new.attach()
        return [added_parameters(added, step)] if added else []

    def is_compiled(self) -> bool:
        """Whether any part of it is compiled."""
        return is_compiled(self.given)

    def has_no_gradient(self) -> bool:
        """Whether no parameter has a gradient."""
        return self._watch.has_no_gradient()

    def owns_gradient(self, gradient: Tensor) -> bool:
        """Whether it is the gradient of one of the parameters."""
        parameters = self.model.parameters() if self.meter is None else self.meter.all_parameters
        return any(p.grad is gradient for p in parameters)

    def copy_weights(self) -> dict[Parameter, Tensor]:
        """Copies of all weights that may be trained."""
        trainable = self._watch.trainable
        return {p: p.detach().clone() for p in self.model.parameters() if p.requires_grad or p in trainable}

    def frozen_sites(self) -> list[str]:
        """The names of the sites none of whose parameters is trained."""
        trained = {p for p in self.model.parameters() if p.requires_grad} | self._watch.trainable
        sites = () if self.meter is None else self.meter.measured_sites
        return [s.site.name for s in sites if s.parameters and trained.isdisjoint(s.parameters)]

    @property
    def _hooks(self) -> ActivationHooks:
        return self._first_pass if self.meter is None else self.meter.activations
