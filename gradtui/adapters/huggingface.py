"""Records what a Hugging Face `Trainer` trains: `Trainer(..., callbacks=[GradtuiCallback()])`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradtui.adapters.recording import Recording, framework
from gradtui.probe.discovery import Layers

_transformers = framework("transformers", "transformers")


class GradtuiCallback(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Records each `train()` of its Trainer as a run of its own; the arguments are those of `gradtui.Probe`.

    A step is one of the optimizer, however many micro-batches it accumulates. Its loss is what the Trainer adds up
    and logs, but of each step, and a NaN stays one (`logging_nan_inf_filter` would hide it). `path` is the newest
    run's file. Wrong arguments raise what `Probe` raises, when training begins.
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
        self._recording = Recording(
            run=run, layers=layers, metrics=metrics, every=every, name=name, log_first=True
        )
        self._losses: list[Tensor] = []
        self._outer: Callable[[], Any] = lambda: None
        _tell_callbacks(_transformers.Trainer)

    @property
    def path(self) -> Path | None:
        """The file of the newest run; None before training began."""
        return self._recording.path

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_kwargs: Any
    ) -> None:
        """Everything is made, and no forward pass has been: begin."""
        self._losses.clear()
        named = None if args.run_name == args.output_dir else args.run_name
        self._recording.begin(model, [optimizer], outer=self._outer(), name=named)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """All micro-batches of this step have gone backward."""
        if self._losses:
            losses, self._losses = self._losses, []
            self._recording.log(losses[0] if len(losses) == 1 else torch.stack(losses).sum())

    def on_train_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """Training is done."""
        self._recording.end()

    @contextmanager
    def watch(self, trainer: Any) -> Iterator[None]:
        """Hear the losses of `trainer`, which is about to train, and how it ends."""
        own = vars(trainer).get("training_step")
        step = trainer.training_step

        @wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            try:
                loss = step(*args, **kwargs)
            except BaseException as error:  # the Trainer may try again with smaller batches
                self._recording.fail(error)
                raise
            if isinstance(loss, Tensor):
                self._losses.append(loss.detach())
            return loss

        self._outer = lambda: getattr(trainer, "model_wrapped", None)
        trainer.training_step = training_step
        try:
            yield
        except BaseException as error:
            self._recording.fail(error)
            raise
        finally:
            self._outer = lambda: None
            self._recording.end()
            if own is None:
                del trainer.training_step
            else:
                trainer.training_step = own


def _tell_callbacks(trainer: Any) -> None:
    """Have `Trainer.train` tell our callbacks, and nobody else: it has no event for an exception or a loss."""
    train = trainer.train
    if hasattr(train, "tells_gradtui"):
        return

    @wraps(train)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, GradtuiCallback):
                    stack.enter_context(callback.watch(self))
            return train(self, *args, **kwargs)

    watched.tells_gradtui = True  # type: ignore[attr-defined]
    trainer.train = watched
