"""Records what a Lightning `Trainer` fits: `Trainer(..., callbacks=[GradtuiCallback()])`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

from gradtui.adapters.recording import RecordingCallback, framework


def _lightning() -> ModuleType:
    """Lightning under the name by which the script knows it: it comes as two packages that do not mix."""
    older = "pytorch_lightning"
    if older not in sys.modules or "lightning" in sys.modules:
        try:
            return framework("lightning.pytorch", "lightning")
        except ModuleNotFoundError as error:
            try:
                return framework(older, "lightning")
            except ModuleNotFoundError:
                raise error from None
    return sys.modules[older]


class GradtuiCallback(RecordingCallback, _lightning().Callback):  # type: ignore[misc]
    """Records each `fit()` of its Trainer as a run of its own; the arguments are those of `gradtui.Probe`.

    A step is complete once each optimizer has stepped, with automatic or manual optimization. Its loss is what
    `training_step` has returned, of all accumulated batches together. `path` is the newest run's file. Wrong
    arguments raise what `Probe` raises, when training begins.
    """

    log_first = False

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """The sanity check is over, and no training batch has been: begin."""
        self._steps = trainer.global_step
        self._begin(pl_module, trainer.optimizers, outer=trainer.strategy.model)

    def on_train_batch_end(
        self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A batch has gone backward, and perhaps an optimizer has stepped."""
        self._add_loss(outputs.get("loss") if isinstance(outputs, Mapping) else outputs)
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            # Lightning has divided the losses that it accumulates; with manual optimization it knows of none.
            automatic = getattr(pl_module, "automatic_optimization", True)
            self._log(torch.sum if automatic else torch.mean)

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Training is done."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Training has failed, or was interrupted."""
        self._fail(exception)

    def teardown(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Remove the hooks from the model, whatever way `fit` has ended."""
        self._end()
