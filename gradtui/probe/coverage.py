"""Sentences about what a probe cannot measure of a model, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradtui.probe.accumulator import DELTA, GRAD, STREAM, STREAM_GRAD, WEIGHT, StepAccumulator

# So often a changed number of measured values is looked into; a model may change it at every step.
MOST_CHECKS = 20
MOST_NAMES = 4


class Coverage:
    """Compares what steps have measured with what they should have.

    `names` are those of the sites, `rows` the rows that are measured, `stream_sites` the sites with a hook.
    """

    def __init__(self, names: Sequence[str], rows: frozenset[int], stream_sites: Iterable[int]) -> None:
        self._names, self._rows, self._stream_sites = names, rows, frozenset(stream_sites)
        self._count, self._checks = -1, 0
        self._passes_without_step = 0
        self.suspected: list[str] = []
        """What the newest observation has found missing."""

    def is_due(self, step: StepAccumulator) -> bool:
        """Whether `step` is to be observed: it has measured more or less than the one before."""
        return self._checks < MOST_CHECKS and self._count_of(step) != self._count

    def observe(self, step: StepAccumulator, errors: Mapping[int, str], *, is_compiled: bool) -> list[str]:
        """Look into a step; returns sentences to record.

        `errors` are those of hooks, by site. What is missing for the first time is only `suspected`: modules may
        have been compiled since the hooks were registered. Register them anew; if it is missing at the next step,
        too, it is returned.
        """
        self._count = self._count_of(step)
        self._checks += 1
        was_suspected, self.suspected = bool(self.suspected), self._missing(step, errors, is_compiled)
        if self.suspected and not was_suspected:
            self._count = -1
            return []
        return self.suspected

    @property
    def is_in_doubt(self) -> bool:
        """Whether something was missing for the first time in the step just observed."""
        return bool(self.suspected) and self._count == -1

    def pass_without_step(self, step: int) -> list[str]:
        """Very much has been measured since step `step` began; returns sentences to record."""
        self._passes_without_step += 1
        if self._passes_without_step != 2:
            return []
        return [
            f"gradients keep arriving, but this probe's optimizer has not stepped since step {step}: if "
            "another one has taken over, give that one to a probe"
        ]

    def step_done(self) -> None:
        """The optimizer has stepped."""
        self._passes_without_step = 0

    def _count_of(self, step: StepAccumulator) -> int:
        """How many values a step has measured, without those of the weights, which not every step measures."""
        count = len(self._names)
        return sum(not WEIGHT * count <= cell < (DELTA + 1) * count for cell in step.cells)

    def _missing(self, step: StepAccumulator, errors: Mapping[int, str], is_compiled: bool) -> list[str]:
        cells, count = set(step.cells), len(self._names)

        def measured(row: int) -> set[int]:
            return {site for site in range(count) if row * count + site in cells}

        with_gradient = measured(GRAD)
        if GRAD in self._rows and not with_gradient:
            return [
                "no parameter has a gradient (.grad is None everywhere): gradients taken by torch.func or "
                "torch.autograd.grad cannot be seen"
            ]
        sentences = []
        for reason in dict.fromkeys(errors.values()):
            names = self._listed(site for site, why in errors.items() if why == reason)
            sentences.append(f"activations and stream gradients of {names} cannot be seen: {reason}")
        with_stream = measured(STREAM_GRAD if STREAM_GRAD in self._rows else STREAM)
        silent = sorted((with_gradient & self._stream_sites) - with_stream - errors.keys())
        if silent:
            why = (
                "they are inside a graph of torch.compile, which hooks do not reach (compile block by block "
                "to see them)"
                if is_compiled
                else "they are not called as modules, so no hook hears them"
            )
            what = f"activations and stream gradients of {self._listed(silent)} cannot be seen"
            sentences.append(f"{what}: {why}; gradients and updates of the weights are complete")
        return sentences

    def _listed(self, sites: Iterable[int]) -> str:
        names = [self._names[site] for site in sites]
        return f"all {len(names)} sites" if len(names) == len(self._names) else listed(names, "sites")


def added_parameters(names: Sequence[str], step: int) -> str:
    """The sentence about parameters that have come to the model since its sites are known."""
    return f"{listed(names)} came to the model at step {step}, when its sites were known: not measured"


def listed(names: Sequence[str], what: str = "") -> str:
    """The first few names, and how many `what` more there are."""
    shown = ", ".join(names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more{' ' + what if what else ''}" if more > 0 else shown
