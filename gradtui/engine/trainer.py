"""Trains one preset, one step at a time, and records every step in its run file."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from gradtui import __version__
from gradtui.analysis.alarms import AlarmTracker
from gradtui.engine.process_setup import choose_device
from gradtui.metrics import CLIPPED, SAMPLED_METRICS, SITE_METRICS, TRUNK_SHARE, is_sampled_step
from gradtui.presets import Preset
from gradtui.presets.parts import OPTIMIZERS, SCHEDULES, resolve
from gradtui.probe.discovery import measured_sites
from gradtui.probe.meter import Meter
from gradtui.probe.wire import PendingStep, Wire
from gradtui.runs.schema import Event, Floats, Frame
from gradtui.runs.writer import RunWriter
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

# A few steps beyond the first non-finite loss show that it stays so; more would only burn time.
NONFINITE_STEPS = 5


class Trainer:
    """A preset in training. Raises CorpusError, DeviceError or RunError where it cannot begin."""

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
        self._metrics = (*SITE_METRICS, *clipped, TRUNK_SHARE)
        self._meter = Meter(measured_sites(self.model.sites()), self._metrics)
        self._meter.attach()
        self._wire = Wire(self.device)
        self._alarms = AlarmTracker(self._meter.sites, self._metrics)
        self._nonfinite = 0
        self._seconds = 0.0
        self.lr_scale = 1.0
        self.step_count = 0
        self.writer = RunWriter(run, self._meter.sites, self._facts(), metrics=self._metrics, keep=keep)

    def _facts(self) -> dict[str, Any]:
        config, training = self.preset.model, self.preset.training
        return {
            "source": "preset",
            "closely": list(SAMPLED_METRICS),
            "name": self.preset.id,
            "preset": msgspec.to_builtins(self.preset),
            "seed": self.seed,
            "steps": training.steps,
            "device": self.device.type,
            "device_name": _device_name(self.device),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "tokens_per_step": training.batch * config.context,
            "versions": {
                "gradtui": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    @property
    def diverged(self) -> bool:
        """The loss has been NaN or infinite for several steps."""
        return self._nonfinite >= NONFINITE_STEPS

    def step(self) -> list[Frame]:
        """Take one optimizer step; returns the frames that arrived (on a GPU those of the step before)."""
        began = time.perf_counter()
        training = self.preset.training
        lr = training.lr * self._schedule(self.step_count, training) * self.lr_scale
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        tokens_BS = self._corpus.batch(self.step_count, training.batch, self.preset.model.context, self.seed).to(
            self.device
        )
        self._optimizer.zero_grad(set_to_none=True)
        closely = is_sampled_step(self.step_count)
        self._meter.streams.measure_trunk(closely)
        loss = self.model.loss(tokens_BS)
        loss.backward()
        self._meter.read_gradients()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.clip)
            self._meter.read_clipped()
        scalars = {"loss": loss, "lr": lr, **(self._meter.before_step() if closely else {})}
        self._optimizer.step()
        self.model.after_step()
        if closely:
            self._meter.after_step()
        told = self._readings() if closely else {}
        tag = self.step_count, list(told)
        arrived = self._wire.send(self._meter.take(), scalars, tag, list(told.values()))
        self.step_count += 1
        self._seconds = time.perf_counter() - began
        return self._record(arrived)

    def _readings(self) -> dict[tuple[str, int], torch.Tensor]:
        """What the model's modules tell of themselves, by name and site's index."""
        index = {site.name: position for position, site in enumerate(self._meter.sites)}
        told = self.model.readings().items()
        return {(name, index[site]): vector for site, found in told for name, vector in found.items()}

    def set_facts(self, **facts: Any) -> None:
        """Change facts of the run file."""
        self.writer.set_facts(**facts)

    def set_lr_scale(self, scale: float) -> None:
        """Multiply the schedule's learning rate by `scale` from the next step on."""
        self.lr_scale = scale
        self.writer.event(Event(self.step_count, "lr", value=scale))

    def rest(self, status: str, reason: str = "") -> list[Frame]:
        """Record all that is under way and note why training stands still."""
        frames = self._record(self._wire.drain())
        self.writer.set_facts(status=status, reason=reason)
        return frames

    def close(self, status: str, reason: str = "") -> None:
        """Record everything and close the run file."""
        self._record(self._wire.drain())
        self._meter.detach()
        self.writer.close(status, reason)

    def _record(self, arrived: list[PendingStep]) -> list[Frame]:
        frames = []
        for parcel in arrived:
            arrival = parcel.open()
            self._meter.mind(arrival.sums, arrival.scalars)
            (step, told), loss = arrival.tag, arrival.scalars["loss"]
            values = arrival.matrix(self._metrics)
            frame = Frame(step, time.time(), self._seconds, loss, arrival.scalars["lr"], values)
            for event in self._alarms.update(step, loss, values):
                self.writer.event(event)
            self._nonfinite = 0 if np.isfinite(loss) else self._nonfinite + 1
            self.writer.append(frame)
            found: dict[str, dict[int, Floats]] = {}
            for (name, site), vector in zip(told, arrival.vectors, strict=True):
                found.setdefault(name, {})[site] = vector
            self.writer.readings(step, found)
            frames.append(frame)
        return frames


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()
