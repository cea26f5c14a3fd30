"""Measures gradients, the residual stream and updates of one model, step by step.

Everything is reduced on the device to one number per tensor; `wire` brings a step's numbers to the host together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from torch.nn import Parameter

from gradtui.probe.accumulator import (
    DELTA,
    GRAD,
    GRAD_CLIPPED,
    NEEDS,
    STREAM,
    STREAM_GRAD,
    STREAM_SUM,
    TRUNK,
    WEIGHT,
    StepAccumulator,
    Totals,
)
from gradtui.probe.activations import ActivationHooks, HookPoint
from gradtui.probe.discovery import MeasuredSite
from gradtui.probe.parameters import ParameterMeter
from gradtui.runs.schema import Site


class Meter:
    """Measures the sites of one model; call its methods in this order, every measured step:

    forward and backward → `read_gradients` → (clipping → `read_clipped`) → `before_step` → optimizer step →
    `after_step` → `take`. Between `attach` and `detach` forward hooks are live; they read tensors and change none,
    so the loss is bit-identical with and without them.

    `owners` splits the parameters among several optimizers: who moves which, by position; what nobody moves is
    the first one's. The methods of a step then take the position of the optimizer that steps.
    """

    def __init__(
        self,
        places: Sequence[MeasuredSite],
        metrics: Sequence[str],
        owners: Sequence[frozenset[Parameter]] = (frozenset(),),
        trainable: frozenset[Parameter] = frozenset(),
    ) -> None:
        self._rows = rows = rows_of(metrics)
        self.metrics = tuple(metrics)
        self.sites: tuple[Site, ...] = tuple(place.site for place in places)
        heard = [(index, place.tap) for index, place in enumerate(places) if place.tap is not None]
        if not rows & _HEARD:
            heard = []
        self.streams = ActivationHooks(
            [tap for _, tap in heard], rows, sites=[index for index, _ in heard], count=len(places)
        )
        self._minded = False
        self._places, self._owners = tuple(places), tuple(owners)
        self.train(trainable)
        self._tally = self._empty()
        self._adopted: StepAccumulator | None = None
        self._spans: dict[int, list[tuple[int, int]]] = {}  # by optimizer, where its gradients are in the tally

    def _empty(self) -> StepAccumulator:
        return StepAccumulator(elements=[0] * len(self.sites), width=[1] * len(self.sites))

    def follow(self, earlier: Meter) -> None:
        """Go on where the meter of a model of the same sites has left off, in the middle of a step."""
        self._adopted = earlier.streams.take()
        self.streams.precise, self._minded = earlier.streams.precise, earlier._minded
        self._hand_on()

    def train(self, trainable: frozenset[Parameter]) -> None:
        """Measure these parameters, and all that need a gradient now; called again where layers are unfrozen."""
        shares = [_share(self._places, self._owners, k, trainable) for k in range(len(self._owners))]
        self._weights = [ParameterMeter(share, len(self.sites), self._rows) for share in shares]
        self._hand_on()

    def _hand_on(self) -> None:
        """What is known of sites that need more precise sums, to weights that were taken on anew."""
        if self._minded:
            for weights in self._weights:
                weights.mind(self.streams.precise, 0.0)

    @property
    def places(self) -> tuple[MeasuredSite, ...]:
        """Where it measures."""
        return self._places

    def attach(self) -> None:
        """Start listening to forward passes."""
        self.streams.attach()

    def detach(self) -> None:
        """Stop listening; the model carries no trace."""
        self.streams.detach()

    def parameters(self, optimizer: int = 0) -> list[Parameter]:
        """The measured parameters that an optimizer moves."""
        return self._weights[optimizer].parameters

    def read_gradients(self, optimizer: int = 0) -> None:
        """Take the gradients, before clipping."""
        self._read(optimizer, GRAD)

    def read_clipped(self, optimizer: int = 0) -> None:
        """Take the gradients once more, after clipping."""
        self._read(optimizer, GRAD_CLIPPED)

    def _read(self, optimizer: int, row: int) -> None:
        begin = len(self._tally.values)
        self._weights[optimizer].read_gradients(self._tally, row)
        self._spans.setdefault(optimizer, []).append((begin, len(self._tally.values)))

    def drop_gradients(self, optimizer: int) -> None:
        """Its step was left out: what was read for it is not part of this step."""
        gone = {k for begin, end in self._spans.pop(optimizer, []) for k in range(begin, end)}
        tally = self._tally
        tally.values = [value for k, value in enumerate(tally.values) if k not in gone]
        tally.places = [place for k, place in enumerate(tally.places) if k not in gone]
        self._spans.clear()

    def before_step(
        self, optimizer: int = 0, weights: Mapping[Parameter, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Know the parameters as they are before the step, or as `weights` says that they were.

        Returns what is to be sent along with the step, for `mind`.
        """
        drift = self._weights[optimizer].before_step(weights)
        return {} if drift is None else {"drift": drift}

    def mind(self, sums: Totals, scalars: Mapping[str, float]) -> None:
        """Take a hint from a step that has arrived: where to sum more precisely, whom not to trust."""
        imprecise_sites = sums.imprecise_sites()
        drift = scalars.get("drift", 0.0)
        if imprecise_sites != self.streams.precise or drift > 0:
            # Once imprecise_sites, always precise: no site is to change back and forth.
            known = self.streams.precise if self._minded else set()
            self.streams.precise = known | imprecise_sites
            for weights in self._weights:
                weights.mind(self.streams.precise, drift)
        self._minded = True

    def after_step(self, optimizer: int = 0) -> None:
        """Measure the update."""
        self._weights[optimizer].after_step(self._tally)

    @property
    def all_parameters(self) -> list[Parameter]:
        """Every measured parameter."""
        return [p for weights in self._weights for p in weights.parameters]

    def adopt(self, earlier: ActivationHooks) -> None:
        """Begin with what was heard before the sites were known."""
        shapes = earlier.heard().shapes
        self.streams.shapes[:] = [shapes.get(tap.key) for tap in self.streams.taps]
        self._adopted = _moved(earlier.take(), earlier.taps, self._places)

    def take_weights(self) -> StepAccumulator:
        """What this step has collected about parameters."""
        tally, self._tally = self._tally, self._empty()
        self._spans.clear()
        return tally

    def take(self) -> StepAccumulator:
        """All that this step has collected."""
        tally, heard = self.take_weights(), self.streams.take()
        if self._adopted is not None:
            heard, self._adopted = self._adopted, None
        tally.values += heard.values
        tally.places += heard.places
        tally.elements, tally.width = heard.elements, heard.width
        return tally

    def heard(self, tally: StepAccumulator) -> int:
        """How many values a step has collected beside those of the weights, which not every step collects."""
        count = len(self.sites)
        return sum(not WEIGHT * count <= place < (DELTA + 1) * count for place in tally.places)

    def blind(self, tally: StepAccumulator, *, compiled: bool) -> list[str]:
        """Sentences that name what this step should have heard and did not, and why."""
        there = set(tally.places)
        count = len(self.sites)

        def measured(row: int) -> set[int]:
            return {site for site in range(count) if row * count + site in there}

        if GRAD in self._rows and not measured(GRAD):
            return [
                "no parameter has a gradient (.grad is None everywhere): gradients taken by torch.func or "
                "torch.autograd.grad cannot be seen"
            ]
        sentences = []
        heard = measured(STREAM_GRAD) if STREAM_GRAD in self._rows else measured(STREAM)
        listening = self.streams.sites
        troubled = {listening[tap]: reason for tap, reason in self.streams.trouble.items()}
        for reason in dict.fromkeys(troubled.values()):
            names = self._names(site for site, why in troubled.items() if why == reason)
            sentences.append(f"activations and stream gradients of {names} cannot be seen: {reason}")
        silent = [site for site in sorted(measured(GRAD)) if site in listening]
        silent = [site for site in silent if site not in heard and site not in troubled]
        if silent:
            why = (
                "they are inside a graph of torch.compile, which hooks do not reach (compile block by block "
                "to see them)"
                if compiled
                else "they are not called as modules, so no hook hears them"
            )
            what = f"activations and stream gradients of {self._names(silent)} cannot be seen"
            sentences.append(f"{what}: {why}; gradients and updates of the weights are complete")
        return sentences

    def _names(self, sites: Iterable[int]) -> str:
        names = [self.sites[site].name for site in sites]
        if len(names) == len(self.sites):
            return f"all {len(names)} sites"
        shown = ", ".join(names[:4])
        return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more sites"


_HEARD = frozenset({STREAM, STREAM_SUM, STREAM_GRAD, TRUNK})


def rows_of(metrics: Sequence[str]) -> frozenset[int]:
    """The rows that are needed for these metrics."""
    return frozenset(row for metric in metrics for row in NEEDS[metric])


def _moved(tally: StepAccumulator, taps: Sequence[HookPoint], places: Sequence[MeasuredSite]) -> StepAccumulator:
    """What was heard at `taps`, as belonging to `places`; the rest is dropped."""
    site_of = {place.tap.key: index for index, place in enumerate(places) if place.tap is not None}
    sites = [site_of.get(tap.key) for tap in taps]
    moved = StepAccumulator(elements=[0] * len(places), width=[1] * len(places))
    for value, code in zip(tally.values, tally.places, strict=True):
        row, tap = divmod(code, len(taps))
        site = sites[tap]
        if site is not None:
            moved.values.append(value)
            moved.places.append(row * len(places) + site)
    for tap, site in enumerate(sites):
        if site is not None:
            moved.elements[site], moved.width[site] = tally.elements[tap], tally.width[tap]
    return moved


def _share(
    places: Sequence[MeasuredSite],
    owners: Sequence[frozenset[Parameter]],
    position: int,
    ever: frozenset[Parameter],
) -> list[tuple[int, list[Parameter]]]:
    """The trainable parameters of each site that the optimizer at `position` moves."""
    owned = owners[position]
    others = frozenset[Parameter]().union(*(o for k, o in enumerate(owners) if k != position))
    share = []
    for index, place in enumerate(places):
        mine = [p for p in place.parameters if p in owned or (position == 0 and p not in others)]
        trainable = [p for p in mine if p.requires_grad or p in ever]
        if trainable:
            share.append((index, trainable))
    return share
