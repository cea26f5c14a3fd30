"""Records what a Lightning `Trainer` fits: `Trainer(..., callbacks=[GradtuiCallback()])`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from gradtui.adapters.recording import Recording, framework
from gradtui.probe.discovery import Layers


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


class GradtuiCallback(_lightning().Callback):  # type: ignore[misc]
    """Records each `fit()` of its Trainer as a run of its own; the arguments are those of `gradtui.Probe`.

    A step is complete once each optimizer has stepped, with automatic or manual optimization. Its loss is what
    `training_step` has returned, of all accumulated batches together. `path` is the newest run's file. Wrong
    arguments raise what `Probe` raises, when training begins.
    """

    def __init__(
        self,
        *,
        run: str | os.PathLike[str] | None = None,
        layers: Layers = None,
        metrics: Sequence[str] | None = None,
        every: int = 1,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._recording = Recording(
            run=run, layers=layers, metrics=metrics, every=every, name=name, log_first=False
        )
        self._losses: list[Tensor] = []
        self._steps = 0

    @property
    def path(self) -> Path | None:
        """The file of the newest run; None before training began."""
        return self._recording.path

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """The sanity check is over, and no training batch has been: begin."""
        self._losses.clear()
        self._steps = trainer.global_step
        self._recording.begin(pl_module, trainer.optimizers, outer=trainer.strategy.model)

    def on_train_batch_end(
        self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A batch has gone backward, and perhaps an optimizer has stepped."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            self._losses.append(loss.detach())
        if trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        if self._losses:
            losses, self._losses = torch.stack(self._losses), []
            # Lightning has divided the losses that it accumulates; with manual optimization it knows of none.
            automatic = getattr(pl_module, "automatic_optimization", True)
            self._recording.log(losses.sum() if automatic else losses.mean())

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Training is done."""
        self._recording.end()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Training has failed, or was interrupted."""
        self._recording.fail(exception)

    def teardown(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Whatever way `fit` ended, nothing of ours stays on the model."""
        self._recording.end()
