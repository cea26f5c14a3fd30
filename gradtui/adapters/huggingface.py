"""Records what a Hugging Face `Trainer` trains: `Trainer(..., callbacks=[GradtuiCallback()])`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn

from gradtui.adapters.recording import RecordingCallback, framework

_transformers = framework("transformers", "transformers")


class GradtuiCallback(RecordingCallback, _transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Records each `train()` of its Trainer as a run of its own; the arguments are those of `gradtui.Probe`.

    A step is one of the optimizer, however many micro-batches it accumulates. Its loss is what the Trainer adds up
    and logs, but of each step, and a NaN stays one (`logging_nan_inf_filter` would hide it). `path` is the newest
    run's file. Wrong arguments raise what `Probe` raises, when training begins.
    """

    log_first = True
    _trainer: Any = None  # the one that trains

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_kwargs: Any
    ) -> None:
        """Everything is made, and no forward pass has been: begin."""
        named = None if args.run_name == args.output_dir else args.run_name
        self._begin(model, [optimizer], outer=getattr(self._trainer, "model_wrapped", None), name=named)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """All micro-batches of this step have gone backward."""
        self._log(torch.sum)

    def on_train_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """Training is done."""
        self._end()

    @contextmanager
    def watch(self, trainer: Any) -> Iterator[None]:
        """Collect the losses of `trainer`, which is about to train, and notice how it ends."""
        own = vars(trainer).get("training_step")
        step = trainer.training_step

        @wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            try:
                loss = step(*args, **kwargs)
            except BaseException as error:  # the Trainer may try again with smaller batches
                self._fail(error)
                raise
            self._add_loss(loss)
            return loss

        self._trainer = trainer
        trainer.training_step = training_step
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._trainer = None
            self._end()
            if own is None:
                del trainer.training_step
            else:
                trainer.training_step = own


def _patch_train(trainer: Any) -> None:
    """Have `Trainer.train` enter `watch` of its gradtui callbacks: it has no event for losses and exceptions."""
    train = trainer.train

    @wraps(train)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, GradtuiCallback):
                    stack.enter_context(callback.watch(self))
            return train(self, *args, **kwargs)

    trainer.train = watched


_patch_train(_transformers.Trainer)
