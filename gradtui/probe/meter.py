"""Measures gradients, the residual stream and updates of one model, step by step.

Everything is reduced on the device to one number per tensor; `transfer` brings a step's numbers to the host
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn import Parameter

from gradtui.probe.accumulator import STREAM_ROWS, MeasuringHints, StepAccumulator, rows_for
from gradtui.probe.activations import ActivationHooks, ActivationListener
from gradtui.probe.discovery import MeasuredSite
from gradtui.probe.parameters import ParameterMeter
from gradtui.runs.schema import Site


class Meter:
    """Measures the sites of one model; call its methods in this order, every measured step:

    forward and backward → `read_gradients` → (clipping → `read_clipped`) → `before_step` → optimizer step →
    `after_step` → `take`. Between `attach` and `detach` forward hooks are registered; they read tensors and change
    none, so the loss is bit-identical with and without them.

    `owners` says which parameters each of several optimizers moves; what none of them moves counts to the first.
    The methods of a step then take the position of the optimizer that steps. `hints` are shared with whoever
    records the steps.
    """

    def __init__(
        self,
        sites: Sequence[MeasuredSite],
        metrics: Sequence[str],
        owners: Sequence[frozenset[Parameter]] = (frozenset(),),
        *,
        hints: MeasuringHints | None = None,
        listener: ActivationListener | None = None,
    ) -> None:
        self.metrics = tuple(metrics)
        self.measured_sites = tuple(sites)
        self.sites: tuple[Site, ...] = tuple(measured.site for measured in sites)
        self.hints = hints or MeasuringHints(len(sites))
        self.rows = rows_for(metrics)
        with_point = [k for k, measured in enumerate(sites) if measured.point is not None and self._needs_streams]
        points = [point for k in with_point if (point := sites[k].point) is not None]
        self.activations = ActivationHooks(
            points, self.rows, sites=with_point, hints=self.hints, listener=listener
        )
        self._owners = tuple(owners)
        self._parameters: list[ParameterMeter] = []
        self.set_trainable(frozenset())

    @property
    def _needs_streams(self) -> bool:
        return bool(self.rows & STREAM_ROWS)

    def set_trainable(self, trainable: frozenset[Parameter]) -> None:
        """Measure these parameters and all that need a gradient now; call it again where layers are unfrozen."""
        earlier, self._parameters = (
            self._parameters,
            [
                ParameterMeter(self._share(optimizer, trainable), self.rows, self.hints)
                for optimizer in range(len(self._owners))
            ],
        )
        for old, new in zip(earlier, self._parameters, strict=False):  # at first there are no earlier ones
            new.continue_from(old)

    def _share(self, optimizer: int, trainable: frozenset[Parameter]) -> list[tuple[int, list[Parameter]]]:
        """The trainable parameters of each site that an optimizer moves."""
        others = frozenset[Parameter]().union(*(o for k, o in enumerate(self._owners) if k != optimizer))
        owned = self._owners[optimizer]
        share = []
        for index, measured in enumerate(self.measured_sites):
            mine = [p for p in measured.parameters if p in owned or (optimizer == 0 and p not in others)]
            mine = [p for p in mine if p.requires_grad or p in trainable]
            if mine:
                share.append((index, mine))
        return share

    def continue_from(self, earlier: Meter) -> None:
        """Begin with what `earlier`, a meter of the same sites, has measured in this step."""
        self.activations.take_over(earlier.activations, {site: site for site in range(len(self.sites))})
        for old, new in zip(earlier._parameters, self._parameters, strict=True):
            new.continue_from(old)

    def attach(self) -> None:
        """Register the forward hooks."""
        self.activations.attach()

    def detach(self) -> None:
        """Remove the forward hooks; nothing of the meter stays on the model."""
        self.activations.detach()

    def parameters(self, optimizer: int = 0) -> list[Parameter]:
        """The measured parameters that an optimizer moves."""
        return self._parameters[optimizer].parameters

    @property
    def all_parameters(self) -> list[Parameter]:
        """Every measured parameter."""
        return [p for meter in self._parameters for p in meter.parameters]

    def read_gradients(self, optimizer: int = 0) -> None:
        """Measure the gradients, before clipping."""
        self._parameters[optimizer].read_gradients()

    def read_clipped(self, optimizer: int = 0) -> None:
        """Measure the gradients once more, after clipping."""
        self._parameters[optimizer].read_clipped()

    def drop_gradients(self, optimizer: int) -> None:
        """Forget what was read for an optimizer whose step is left out."""
        self._parameters[optimizer].take()

    def before_step(
        self, optimizer: int = 0, weights: Mapping[Parameter, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Keep the parameters as they are before the step; `weights` are those of before it, where it is too late.

        Returns scalars to send along with the step, for `MeasuringHints`.
        """
        drift = self._parameters[optimizer].before_step(weights)
        return {} if drift is None else {"drift": drift}

    def after_step(self, optimizer: int = 0) -> None:
        """Measure the update."""
        self._parameters[optimizer].after_step()

    def take_parameters(self) -> tuple[list[Tensor], list[int]]:
        """The numbers that this step has measured of parameters, and their cells (see `StepAccumulator`)."""
        values: list[Tensor] = []
        cells: list[int] = []
        for meter in self._parameters:
            more_values, more_cells = meter.take()
            values += more_values
            cells += more_cells
        return values, cells

    def take(self) -> StepAccumulator:
        """All that this step has measured."""
        step = self.activations.take()
        values, cells = self.take_parameters()
        step.values, step.cells = values + step.values, cells + step.cells
        return step
