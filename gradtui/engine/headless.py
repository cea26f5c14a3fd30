"""Trains one preset in this process, without a screen."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

from gradtui.engine.process_setup import keep_freed_pages
from gradtui.engine.trainer import Trainer
from gradtui.presets import Preset
from gradtui.runs.schema import Frame


class Interrupted(Exception):
    """Training has ended by SIGINT, SIGTERM or SIGHUP, all of it recorded. `signal` is the number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


def train(
    preset: Preset,
    *,
    seed: int,
    device: str,
    run: Path,
    on_frame: Callable[[Frame], None],
    keep: int | None = None,
) -> None:
    """Train to the preset's last step, or until the loss has diverged; `on_frame` sees every frame.

    `keep` bounds the run file to that many steps in full.

    Raises CorpusError, DeviceError or RunError, and Interrupted after a signal.
    """
    torch.set_num_threads(1)
    keep_freed_pages()
    trainer = Trainer(preset, seed=seed, device=device, run=run, keep=keep)
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if caught:
            os._exit(128 + number)  # the second time means now; what was committed is on disk
        caught.append(number)
        if sys.stderr is not None:
            sys.stderr.write("\ngradtui: stopping after this step; once more to end at once\n")

    # Signals that the parent has had ignored (nohup) stay ignored.
    names = [
        name
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) != signal.SIG_IGN
    ]
    previous = {name: signal.signal(getattr(signal, name), remember) for name in names}
    try:
        while trainer.step_count < preset.training.steps and not trainer.diverged and not caught:
            for frame in trainer.step():
                on_frame(frame)
        if caught:
            trainer.close("stopped", f"signal {caught[0]}")
            raise Interrupted(caught[0])
        if trainer.diverged:
            trainer.close("diverged", "the loss is not finite")
        else:
            trainer.close("done")
    except BaseException as error:
        trainer.close("failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        for name, handler in previous.items():
            signal.signal(getattr(signal, name), handler)
