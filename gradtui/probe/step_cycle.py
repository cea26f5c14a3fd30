"""Which optimizers of one training step have been measured, and what is to be measured next. Pure; no torch.

A step of a model that several optimizers train is complete once each of them has stepped, or was left out by a
`GradScaler` because its gradients were not finite. The caller reports what happens, in this order for each
optimizer, and does what the returned `Action` says:

    `clipping` (any number of times) → `before` → [the optimizer steps] → `after` → `stepped`

or `skipped` instead of the last three.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from gradtui.metrics import FIRST_SAMPLED_BY_PROBE, is_sampled_step


class Action(Flag):
    """What to measure now, of the optimizer that was named."""

    NOTHING = 0
    READ_GRADIENTS = auto()
    """Its gradients, not clipped yet."""
    READ_CLIPPED = auto()
    """Its gradients once more, after clipping."""
    KEEP_WEIGHTS = auto()
    """Keep its weights as they are before the step."""
    MEASURE_UPDATE = auto()
    """How far the step has moved them."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A step has come to its end. `is_taken` is False where every optimizer was left out: it does not count."""

    step: int
    is_measured: bool
    is_taken: bool = True


class StepCycle:
    """Steps of optimizers 0 … `optimizers` - 1; without an optimizer, of the caller's own, as if it were one.

    Of the steps, counted from 0, each `every`-th is measured; if `samples_updates`, updates only at sampled steps.
    Of several steps of one optimizer within a step, the first counts.
    """

    def __init__(self, *, every: int = 1, samples_updates: bool = False) -> None:
        self.optimizers = 0
        self.step = 0
        self._every, self._samples_updates = every, samples_updates
        self.restart()

    def restart(self) -> None:
        """Forget what has happened within the step."""
        self._read: set[int] = set()
        self._clipped_unread: set[int] = set()
        self._stepped: set[int] = set()
        self._skipped: set[int] = set()

    @property
    def is_measured(self) -> bool:
        """Whether the step is one of those that are measured."""
        return self.step % self._every == 0

    @property
    def measures_updates(self) -> bool:
        """Whether its update is measured, too, if it is."""
        count = self.step // self._every
        return not self._samples_updates or is_sampled_step(count, FIRST_SAMPLED_BY_PROBE)

    @property
    def has_read_gradients(self) -> bool:
        """Whether gradients of any optimizer have been read in this step."""
        return bool(self._read)

    def is_due(self, optimizer: int) -> bool:
        """Whether the optimizer's next step is to be measured."""
        return self.is_measured and optimizer not in self._stepped

    def clipping(self, optimizer: int) -> Action:
        """Its gradients are about to be clipped."""
        if not self.is_due(optimizer):
            return Action.NOTHING
        action = Action.NOTHING if optimizer in self._read else self._reading(optimizer)
        self._clipped_unread.add(optimizer)
        return action

    def before(self, optimizer: int, *, has_closure: bool = False) -> Action:
        """It is about to step; `has_closure`: the forward and backward pass are part of the step."""
        if not self.is_due(optimizer):
            return Action.NOTHING
        action = Action.NOTHING if has_closure else self._reading(optimizer)
        return action | Action.KEEP_WEIGHTS if self.measures_updates else action

    def after(self, optimizer: int) -> Action:
        """Its step is over; `stepped` follows when the action is done."""
        if not self.is_due(optimizer):
            return Action.NOTHING
        action = self._reading(optimizer)
        return action | Action.MEASURE_UPDATE if self.measures_updates else action

    def stepped(self, optimizer: int) -> Completed | None:
        """It has stepped. Returns the completed step, if it was the last one; then the next step begins."""
        self._stepped.add(optimizer)
        return self._complete()

    def skipped(self, optimizer: int) -> Completed | None:
        """Its step was left out. Returns the completed step, if it was the last one; then the next step begins."""
        if optimizer in self._stepped:
            return None
        self._skipped.add(optimizer)
        return self._complete()

    def _reading(self, optimizer: int) -> Action:
        if optimizer not in self._read:
            self._read.add(optimizer)
            return Action.READ_GRADIENTS
        if optimizer in self._clipped_unread:
            self._clipped_unread.discard(optimizer)
            return Action.READ_CLIPPED
        return Action.NOTHING

    def _complete(self) -> Completed | None:
        if len(self._stepped | self._skipped) < max(1, self.optimizers):
            return None
        completed = Completed(self.step, self.is_measured, is_taken=bool(self._stepped))
        self.restart()
        self.step += completed.is_taken
        return completed
