"""What the callbacks share: arguments, loading a framework that may be missing, one run for each training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gradtui.probe.discovery import Layers, unwrapped
from gradtui.probe.probe import Probe


def framework(name: str, package: str) -> ModuleType:
    """The module `name`; raises ModuleNotFoundError with a sentence that says what to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # it is installed, but something that it needs is not
        sentence = f"this callback is for {package}, which is not installed here: pip install {package}"
        raise ModuleNotFoundError(sentence, name=name) from None


class RecordingCallback:
    """The base of callbacks: records each training as a run of its own.

    The arguments are those of `gradtui.Probe`. Where `run` names a file, the second training's is named after it
    with -2, and so on. A subclass calls `_begin`, `_add_loss`, `_log` and `_end` or `_fail` at its framework's
    events; `log_first` says whether it logs the loss of a step before the step is complete.
    """

    log_first: ClassVar[bool]

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
        self._run, self._name = run, name
        self._make_probe = partial(Probe, layers=layers, metrics=metrics, every=every, log_first=self.log_first)
        self._probe: Probe | None = None
        self._runs = 0
        self._losses: list[Tensor] = []
        self._path: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file of the newest run; None before training began."""
        return self._path

    def _begin(
        self, model: nn.Module, optimizers: Iterable[Optimizer], *, outer: Any = None, name: str | None = None
    ) -> None:
        """Record from now on. Raises what `Probe` raises.

        `outer` is what the framework calls in place of `model`: compiled, or wrapped for several processes. Any
        other wrapper is of no concern to the probe. `name` is the run's where the user has given none.
        """
        if isinstance(outer, nn.Module) and unwrapped(outer) is model:
            model = outer
        self._end("failed", "training began anew before it was done")
        run = None if self._run is None else Path(self._run)
        if run is not None and self._runs:
            run = run.with_stem(f"{run.stem}-{self._runs + 1}")
        self._probe = self._make_probe(model, optimizers, run=run, name=self._name or name)
        self._path = self._probe.path
        self._runs += 1
        self._losses.clear()

    def _add_loss(self, loss: object) -> None:
        """Keep the loss of a batch, if it is one."""
        if isinstance(loss, Tensor):
            self._losses.append(loss.detach())

    def _log(self, combine: Callable[[Tensor], Tensor]) -> None:
        """Record a step's loss: that of its only batch, or the losses of all its batches combined."""
        losses, self._losses = self._losses, []
        if losses and self._probe is not None:
            self._probe.log(loss=losses[0] if len(losses) == 1 else combine(torch.stack(losses)))

    def _end(self, status: str | None = None, reason: str = "") -> None:
        """The training is over; without effect where none is recorded."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close(status, reason)

    def _fail(self, error: BaseException) -> None:
        """The training has ended with `error`."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.__exit__(type(error), error, error.__traceback__)
