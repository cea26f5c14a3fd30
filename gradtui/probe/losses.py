"""Which step a logged loss belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Loss = Tensor | float


class LossLog:
    """Collects the losses that are logged before their step.

    `logs_first` says whether a loss is logged before its step is complete or after it. None: as it is with the
    first loss.
    """

    def __init__(self, logs_first: bool | None) -> None:
        self._logs_first = logs_first
        self._losses: list[Loss] = []

    @property
    def logs_first(self) -> bool:
        """Whether losses are logged before their step; False as long as that is not known."""
        return bool(self._logs_first)

    def note_order(self, completed_steps: int) -> None:
        """A loss is logged after so many completed steps."""
        if self._logs_first is None:
            self._logs_first = completed_steps == 0

    def add(self, loss: Loss) -> None:
        """Keep a loss of the step that is not complete yet."""
        self._losses.append(loss)

    def take(self) -> Loss | None:
        """The mean of the kept losses (of accumulated micro-batches), which are then forgotten; None: of none."""
        losses, self._losses = self._losses, []
        return _mean(losses) if losses else None


def as_loss(value: object) -> Loss:
    """What was logged as a number, or as a 0-d tensor that is not waited for; of several numbers their mean.

    Raises TypeError, ValueError, OverflowError or RuntimeError where that cannot be.
    """
    if isinstance(value, Tensor):
        return value.detach().float().mean() if value.ndim else value.detach().clone()
    return float(value)  # type: ignore[arg-type]


def _mean(losses: Sequence[Loss]) -> Loss:
    if len(losses) == 1:
        return losses[0]
    tensors = [loss for loss in losses if isinstance(loss, Tensor)]
    if not tensors:
        return sum(float(loss) for loss in losses) / len(losses)
    like = tensors[0]
    return torch.stack([torch.as_tensor(loss, dtype=like.dtype, device=like.device) for loss in losses]).mean()
