"""Trains one preset, one step at a time, and records every step in its run file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradtui.engine.process_setup import choose_device
from gradtui.metrics import CLIPPED, SAMPLED_METRICS, SITE_METRICS, TRUNK_SHARE, is_sampled_step
from gradtui.presets import Preset, flatten
from gradtui.presets.parts import OPTIMIZERS, SCHEDULES, resolve
from gradtui.probe.discovery import sites_of_modules
from gradtui.probe.meter import Meter
from gradtui.probe.recorder import Recorder, RunSettings, model_facts
from gradtui.probe.transfer import PendingStep, Reading, StepTag, Transfer
from gradtui.runs.schema import Event, Frame
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

# A few steps beyond the first non-finite loss show that it stays so; more would only take time.
NONFINITE_STEPS = 5


class Trainer:
    """A preset in training. Raises CorpusError, DeviceError or RunError where it cannot begin.

    After a RunError of any method what was measured waits in memory; the next call tries to write it again.
    """

    def __init__(self, preset: Preset, *, seed: int, device: str, run: Path, keep: int | None = None) -> None:
        self.preset, self.seed = preset, seed
        self.device = choose_device(device)
        config, training = preset.model, preset.training
        self._corpus = load_corpus(preset.corpus, context=config.context, seed=seed)
        self.model = Transformer(config, seed).to(self.device)
        make_optimizer = resolve(OPTIMIZERS[training.optimizer])
        self._optimizer: torch.optim.Optimizer = make_optimizer(self.model.parameters(), training)
        self._schedule = resolve(SCHEDULES[training.schedule])
        # Where gradients are clipped, both norms are recorded.
        clipped = (CLIPPED,) if training.clip else ()
        self._meter = Meter(sites_of_modules(self.model.sites()), (*SITE_METRICS, *clipped, TRUNK_SHARE))
        self._site_index = {site.name: index for index, site in enumerate(self._meter.sites)}
        self._transfer = Transfer(self.device)
        settings = RunSettings(run, self._meter.sites, self._meter.metrics, self._facts(), keep)
        self._recorder = Recorder(settings, self._meter.hints)
        self._meter.attach()
        self._nonfinite_steps = 0
        self.lr_scale = 1.0
        self.step_count = 0

    def _facts(self) -> dict[str, Any]:
        training = self.preset.training
        facts = {
            "source": "preset",
            "closely": list(SAMPLED_METRICS),
            "name": self.preset.id,
            "preset": flatten(self.preset),
            "seed": self.seed,
            "steps": training.steps,
            "tokens_per_step": training.batch * self.preset.model.context,
        }
        return facts | model_facts(self.model, self.device)

    @property
    def diverged(self) -> bool:
        """Whether the loss has been NaN or infinite for several steps."""
        return self._nonfinite_steps >= NONFINITE_STEPS

    def step(self) -> list[Frame]:
        """Take one optimizer step; returns the frames that arrived (on a GPU those of the step before)."""
        began = time.perf_counter()
        training, meter = self.preset.training, self._meter
        lr = training.lr * self._schedule(self.step_count, training) * self.lr_scale
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        tokens_BS = self._corpus.batch(self.step_count, training.batch, self.preset.model.context, self.seed).to(
            self.device
        )
        self._optimizer.zero_grad(set_to_none=True)
        sampled = is_sampled_step(self.step_count)
        meter.activations.measure_trunk(sampled)
        loss = self.model.loss(tokens_BS)
        loss.backward()
        meter.read_gradients()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.clip)
            meter.read_clipped()
        scalars = {"loss": loss, "lr": lr, **(meter.before_step() if sampled else {})}
        self._optimizer.step()
        self.model.after_step()
        if sampled:
            meter.after_step()
        readings = self._readings() if sampled else {}
        accumulator = meter.take()
        arrived = (
            self._transfer.drain()
        )  # on a GPU this waits for the step before, which is part of this one's time
        tag = StepTag(self.step_count, time.time(), time.perf_counter() - began)
        arrived += self._transfer.send(tag, accumulator, scalars, readings)
        self.step_count += 1
        return self._record(arrived)

    def _readings(self) -> dict[Reading, torch.Tensor]:
        """The readings that the model's modules have taken in the last forward pass."""
        return {
            (name, self._site_index[site]): vector
            for site, found in self.model.readings().items()
            for name, vector in found.items()
        }

    def set_facts(self, **facts: Any) -> None:
        """Change facts of the run file."""
        self._recorder.set_facts(**facts)

    def set_lr_scale(self, scale: float) -> None:
        """Multiply the schedule's learning rate by `scale` from the next step on."""
        self.lr_scale = scale
        self._recorder.event(Event(self.step_count, "lr", value=scale))

    def rest(self, status: str, reason: str = "") -> list[Frame]:
        """Record all that is under way, and the status and the reason while no steps are taken."""
        frames = self._record(self._transfer.drain())
        self._recorder.set_facts(status=status, reason=reason)
        return frames

    def close(self, status: str, reason: str = "") -> None:
        """Record everything and close the run file."""
        self._record(self._transfer.drain())
        self._meter.detach()
        self._recorder.close(status, reason)

    def _record(self, arrived: Iterable[PendingStep]) -> list[Frame]:
        frames = []
        for pending in arrived:
            frame = self._recorder.put(pending)
            if frame is not None:
                loss = np.nan if frame.loss is None else frame.loss
                self._nonfinite_steps = 0 if np.isfinite(loss) else self._nonfinite_steps + 1
                frames.append(frame)
        return frames
