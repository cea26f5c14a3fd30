"""A worker: does one job after another. `python -m gradtui.verify.worker`, JSON lines on stdin and stdout.

It ends when its stdin does; while it trains it notices at the next progress line that nobody listens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from gradtui.engine.process_setup import keep_freed_pages
from gradtui.engine.trainer import Trainer
from gradtui.presets import Preset
from gradtui.verify import VerifyError
from gradtui.verify.invariants import last_and_sum
from gradtui.verify.jobs import Answer, Bench, Done, Failed, Job, Progress, Train, decode_job, encode
from gradtui.verify.registry import BENCHMARKS, INVARIANTS, resolve
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

NICE = 5
PROGRESS_SECONDS = 0.25
# Windows that training does not draw: its batches depend on (seed, step), and no claim has such a seed. A few of
# their bytes may also have been in a training window, as both come from one text.
HELD_OUT_SEED = 1 << 40
HELD_OUT_BATCHES = 32
# Facts made of what a module reads of itself: the 5th, 50th and 95th percentile over tokens of an RMS.
READINGS = {"routed_spread": "routed_rms", "latent_spread": "latent_rms"}

Say = Callable[[Answer], None]


def main() -> None:
    """Do jobs until stdin ends."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    torch.set_num_threads(1)
    keep_freed_pages()
    # Whatever a library prints must not get between the lines.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))  # drafts are tidied away
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(1)


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer each line of `jobs`; a job that fails is answered, too."""

    def say(answer: Answer) -> None:
        answers.write(encode(answer))

    for line in jobs:
        try:
            job = decode_job(line)
            say(Done(_do(job, say)))
        except BrokenPipeError:
            raise
        except VerifyError as error:
            say(Failed(str(error)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            first = str(error).split("\n", 1)[0][:200]
            say(Failed(f"{type(error).__name__}: {first}"))


def _do(job: Job, say: Say) -> float | None:
    if isinstance(job, Train):
        train(job, say)
        return None
    if isinstance(job, Bench):
        value = resolve(BENCHMARKS[job.name])(job.mode, job.passed, job.seed)
    else:
        value = resolve(INVARIANTS[job.name])(job.preset, job.seed)
    return float(value) if np.isfinite(value) else None


def train(job: Train, say: Say) -> None:
    """Train and record; the run file appears under its name only when it is complete."""
    out = Path(job.out)
    draft = out.with_name(f".{out.stem}.{os.getpid()}{out.suffix}")
    _remove(draft)
    try:
        trainer = Trainer(job.preset, seed=job.seed, device="cpu", run=draft)
        said = 0.0
        # The preset's own number of steps stays: a schedule may depend on it.
        while trainer.step_count < job.steps and not trainer.diverged:
            trainer.step()
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                say(Progress(trainer.step_count))
        if job.evaluate:
            trainer.set_facts(**evaluate(trainer.model, job.preset, job.seed))
        trainer.close("diverged" if trainer.diverged else "done")
        draft.replace(out)
    finally:
        _remove(draft)


def evaluate(model: Transformer, preset: Preset, seed: int) -> dict[str, float]:
    """Facts that only the end of a run can tell: its loss on held-out batches, and what its modules read."""
    corpus = load_corpus(preset.corpus, context=preset.model.context, seed=seed)

    def batch(index: int) -> torch.Tensor:
        return corpus.batch(index, preset.training.batch, preset.model.context, HELD_OUT_SEED)

    model.eval()
    with torch.no_grad():
        facts = {"validation_loss": float(np.mean([float(model.loss(batch(i))) for i in range(HELD_OUT_BATCHES)]))}
    ends = last_and_sum(model, batch(HELD_OUT_BATCHES))
    if ends is not None:
        # Of directions alone: the final norm takes the scale away.
        last_BTD, total_BTD = (end / end.norm(dim=-1, keepdim=True) for end in ends)
        facts["sum_angle"] = float((last_BTD - total_BTD).norm(dim=-1).mean())
    model.train()
    model.loss(batch(HELD_OUT_BATCHES))  # modules read only what passes through them in training
    told: list[Any] = [getattr(module, "readings", None) for module in model.modules()]
    readings = [read for read in told if isinstance(read, dict)]
    for fact, name in READINGS.items():
        ratios = [float(read[name][-1] / read[name][0]) for read in readings if name in read]
        if ratios:
            facts[fact] = max(ratios)
    return facts


def _remove(draft: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
