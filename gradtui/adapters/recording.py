"""What the callbacks share: loading a framework that may be missing, and one run for each training."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

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
            raise  # it is there, and something that it needs is not
        sentence = f"this callback is for {package}, which is not installed here: pip install {package}"
        raise ModuleNotFoundError(sentence, name=name) from None


class Recording:
    """The runs that one callback records, one for each time that training starts.

    The options are those of `Probe`; `log_first` says whether a step's loss is logged before the step. Where `run`
    names a file, the second run's is named after it with -2, and so on.
    """

    def __init__(
        self,
        *,
        run: str | os.PathLike[str] | None,
        layers: Layers,
        metrics: Sequence[str] | None,
        every: int,
        name: str | None,
        log_first: bool,
    ) -> None:
        self._run, self._name = run, name
        self._options: dict[str, Any] = {
            "layers": layers,
            "metrics": metrics,
            "every": every,
            "log_first": log_first,
        }
        self._begun = 0
        self._probe: Probe | None = None
        self.path: Path | None = None

    def begin(
        self, model: nn.Module, optimizers: Iterable[Optimizer], *, outer: Any = None, name: str | None = None
    ) -> None:
        """Record from now on. Raises what `Probe` raises.

        `outer` is what the framework calls for `model`: compiled, or one of several processes' (a wrapper of its
        own that is neither is none of the probe's business). `name` is the run's where the user has given none.
        """
        if isinstance(outer, nn.Module) and unwrapped(outer) is model:
            model = outer
        self.end("failed", "training began anew before it was done")
        run = None if self._run is None else Path(self._run)
        if run is not None and self._begun:
            run = run.with_stem(f"{run.stem}-{self._begun + 1}")
        self._probe = Probe(model, optimizers, run=run, name=self._name or name, **self._options)
        self.path = self._probe.path
        self._begun += 1

    def log(self, loss: Tensor) -> None:
        """Record a step's loss."""
        if self._probe is not None:
            self._probe.log(loss=loss)

    def end(self, status: str | None = None, reason: str = "") -> None:
        """The training is over. Nothing happens where none is recorded."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close(status, reason)

    def fail(self, error: BaseException) -> None:
        """The training has ended with `error`."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.__exit__(type(error), error, error.__traceback__)
