"""What a worker process does: trains and records, computes invariants, takes benchmarks."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from gradtui.analysis.quantities import QUANTITIES
from gradtui.engine.process_setup import keep_freed_pages
from gradtui.engine.trainer import Trainer
from gradtui.metrics import HIGH, LOW
from gradtui.presets import Preset
from gradtui.verify import VerifyError, benchmarks, invariants
from gradtui.verify.jobs import BenchmarkJob, Done, Failed, Job, Progress, TrainingJob
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

NICE = 5
PROGRESS_SECONDS = 0.25
# Windows that training does not draw: its batches depend on (seed, step), and no claim has such a seed. A few of
# their bytes may also have been in a training window, as both come from one text.
HELD_OUT_SEED = 1 << 40
HELD_OUT_BATCHES = 32


def serve(connection: Connection) -> None:
    """Answer each job that comes, also one that fails; returns when the other end is closed.

    Raises ConnectionError where that happens while a job is done.
    """
    if hasattr(os, "nice"):
        os.nice(NICE)
    torch.set_num_threads(1)
    keep_freed_pages()
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        try:
            connection.send(Done(do(job, lambda steps: connection.send(Progress(steps)))))
        except ConnectionError:
            raise
        except VerifyError as error:
            connection.send(Failed(str(error)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            first = str(error).split("\n", 1)[0][:200]
            connection.send(Failed(f"{type(error).__name__}: {first}"))


def do(job: Job, on_progress: Callable[[int], None]) -> float | None:
    """Do `job`; returns its value, None where that is not finite or the job is a training.

    `on_progress` is called with the number of steps done. Raises VerifyError for what cannot be measured.
    """
    if isinstance(job, TrainingJob):
        train(job, on_progress)
        return None
    if isinstance(job, BenchmarkJob):
        value = getattr(benchmarks, job.name)(job.mode, job.passed, job.seed)
    else:
        value = getattr(invariants, job.name)(job.preset, job.seed)
    return float(value) if np.isfinite(value) else None


def train(job: TrainingJob, on_progress: Callable[[int], None]) -> None:
    """Train and record; the run file appears under its name only when it is complete."""
    draft = job.out.with_name(f".{job.out.stem}.{os.getpid()}{job.out.suffix}")
    try:
        trainer = Trainer(job.preset, seed=job.seed, device="cpu", run=draft)
        reported = 0.0
        # The preset's own number of steps stays: a schedule may depend on it.
        while trainer.step_count < job.steps and not trainer.diverged:
            trainer.step()
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                on_progress(trainer.step_count)
        if job.evaluate:
            trainer.set_facts(**evaluate(trainer.model, job.preset, job.seed))
        trainer.close("diverged" if trainer.diverged else "done")
        draft.replace(job.out)
    finally:
        for suffix in ("", "-wal", "-shm"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def evaluate(model: Transformer, preset: Preset, seed: int) -> dict[str, float]:
    """Facts measured when a run has ended: loss on held-out batches, angles and spreads of the stream."""
    corpus = load_corpus(preset.corpus, context=preset.model.context, seed=seed)

    def batch(index: int) -> torch.Tensor:
        return corpus.batch(index, preset.training.batch, preset.model.context, HELD_OUT_SEED)

    model.eval()
    with torch.no_grad():
        facts = {"validation_loss": float(np.mean([float(model.loss(batch(i))) for i in range(HELD_OUT_BATCHES)]))}
    ends = invariants.last_and_sum(model, batch(HELD_OUT_BATCHES))
    if ends is not None:
        # Of directions alone: the final norm takes the scale away.
        last_BTD, total_BTD = (end / end.norm(dim=-1, keepdim=True) for end in ends)
        facts["sum_angle"] = float((last_BTD - total_BTD).norm(dim=-1).mean())
    model.train()
    model.loss(batch(HELD_OUT_BATCHES))  # modules take readings only of what passes through them in training
    found: list[Any] = [getattr(module, "readings", None) for module in model.modules()]
    readings = [reading for reading in found if isinstance(reading, dict)]
    for fact, quantity in QUANTITIES.items():
        percentiles = [reading[quantity.reading] for reading in readings if quantity.reading in reading]
        if percentiles:
            facts[fact] = max(float(vector[HIGH] / vector[LOW]) for vector in percentiles)
    return facts
