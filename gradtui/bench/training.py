"""What the probe and the run file cost a training step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gradtui.bench import Result, summarise
from gradtui.engine.allocator import keep_freed_pages
from gradtui.engine.device import choose_device
from gradtui.engine.trainer import Trainer
from gradtui.presets import Preset, load_library
from gradtui.zoo import registry
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

WARM_UP = 5


class BareLoop:
    """The same training without gradtui: what a user would write by hand."""

    def __init__(self, preset: Preset, device: torch.device) -> None:
        self.preset, self.device = preset, device
        self.corpus = load_corpus(preset.corpus, context=preset.model.context, seed=0)
        self.model = Transformer(preset.model, 0).to(device)
        optimizer = registry.resolve(registry.OPTIMIZERS[preset.training.optimizer])
        self.optimizer: torch.optim.Optimizer = optimizer(self.model.parameters(), preset.training)
        self.count = 0

    def step(self) -> None:
        """One step; the loss is read, as every loop that shows one does."""
        training = self.preset.training
        tokens_BS = self.corpus.batch(self.count, training.batch, self.preset.model.context, 0).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(tokens_BS)
        loss.backward()
        self.optimizer.step()
        loss.item()
        self.count += 1


def bench_preset() -> Preset:
    """Twelve layers of width 64, 512 tokens a step: the lesson's first preset."""
    return load_library().presets["post-ln"]


def _ratios(bare: Callable[[], object], probed: Callable[[], object], pairs: int) -> list[float]:
    for _ in range(WARM_UP):
        bare()
        probed()
    ratios = []
    for _ in range(pairs):
        began = time.perf_counter()
        bare()
        between = time.perf_counter()
        probed()
        ratios.append((time.perf_counter() - between) / (between - began))
    return ratios


def _prepare() -> torch.device:
    torch.set_num_threads(1)
    keep_freed_pages()
    return choose_device("auto")


def bench_probe(repeat: int) -> list[Result]:
    """All metrics, in memory only, against the bare step."""
    from gradtui.probe.meter import Meter

    device = _prepare()
    bare, probed = BareLoop(bench_preset(), device), BareLoop(bench_preset(), device)
    meter = Meter(probed.model.sites(), device)
    meter.attach()
    backward = probed.optimizer.step

    def measured_step() -> None:
        training = probed.preset.training
        tokens_BS = probed.corpus.batch(probed.count, training.batch, probed.preset.model.context, 0).to(device)
        probed.optimizer.zero_grad(set_to_none=True)
        loss = probed.model.loss(tokens_BS)
        loss.backward()
        meter.after_backward()
        backward()
        meter.after_step(loss, probed.count)
        probed.count += 1

    ratios = _ratios(bare.step, measured_step, 25 * repeat)
    return [summarise(f"probe: step time, {device.type}", "the bare step", ratios, "≤ 1.05")]


def bench_lane(repeat: int) -> list[Result]:
    """A lane as the lab runs it, probe and run file included, against the bare loop's speed."""
    device = _prepare()
    bare = BareLoop(bench_preset(), device)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(bench_preset(), seed=0, device=device.type, run=Path(directory) / "bench.gradtui")
        speeds = [1 / ratio for ratio in _ratios(bare.step, trainer.step, 25 * repeat)]
        trainer.close("done")
    return [summarise(f"lane: steps/s, {device.type}", "the bare loop", speeds, "≥ 0.95")]
