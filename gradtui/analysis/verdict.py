"""The verdict on one step of a run, as numbers; the words are the screen's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtui.analysis.alarms import EXPLODE, NONFINITE, RECOVER, VANISH
from gradtui.analysis.flow import FADING, Flow, State
from gradtui.runs.schema import Event

# At initialisation a flow counts as even up to this ratio either way.
EVEN = 1 / FADING
# A collapse that comes later than this has other causes than the first updates.
FIRST_STEPS = 50


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happened up to one step.

    `since` is the step at which the present collapse began, `first` that of the first one (None: none);
    `site` the index of the site where a non-finite value came first, or across which the gradient changes most;
    `direction` is forward, backward, update or loss, `backward` the site where the backward pass met it first if
    the forward pass had met it before;
    `recovered` the step at which a vanished gradient came back; `by_first_steps` whether the first step
    was even and the first collapse came within the first optimizer steps.
    """

    state: State
    ratio: float
    spread: float
    since: int | None = None
    first: int | None = None
    site: int | None = None
    direction: str = ""
    recovered: int | None = None
    by_first_steps: bool = False
    backward: int | None = None


def judge(flow: Flow, step: int, events: Sequence[Event], first_ratio: float) -> Verdict:
    """The verdict at `step` from its flow, the run's events and the flow ratio of its first step.

    A non-finite value stays the verdict from its step on: later finite values do not hide it.
    """
    past = [event for event in events if event.step <= step]
    first = next((event.step for event in past if event.kind == VANISH), None)
    early = 1 / EVEN <= first_ratio <= EVEN and first is not None and 0 < first <= FIRST_STEPS
    trouble = [event for event in past if event.kind == NONFINITE]
    if trouble:
        begin, *rest = trouble
        backward = next((e.site for e in rest if (e.step, e.text) == (begin.step, "backward")), None)
        return Verdict(
            "nonfinite", flow.ratio, flow.spread, begin.step, first, begin.site, begin.text, backward=backward
        )
    if flow.state == "exploding":
        began = [event.step for event in past if event.kind == EXPLODE]
        return Verdict(flow.state, flow.ratio, flow.spread, began[-1] if began else None, first, flow.steepest)
    turns = [event for event in past if event.kind in (VANISH, RECOVER)]
    since = turns[-1].step if turns and turns[-1].kind == VANISH else None
    recovered = turns[-1].step if turns and turns[-1].kind == RECOVER else None
    if flow.state != "vanished":
        since = None
    return Verdict(flow.state, flow.ratio, flow.spread, since, first, flow.steepest, "", recovered, early)
