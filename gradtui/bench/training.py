"""What the probe and the run file cost a training step."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gradtui.bench import Result, Size, summarise
from gradtui.engine.process_setup import choose_device, keep_freed_pages
from gradtui.engine.trainer import Trainer
from gradtui.presets import Preset, load_library
from gradtui.presets.parts import OPTIMIZERS, resolve
from gradtui.probe.recorder import ProbeWarning
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

WARM_UP = 5
PAIRS_PROBE, PAIRS_LANE = 40, 25


class BareLoop:
    """The same training without gradtui: what a user would write by hand."""

    def __init__(self, preset: Preset, device: torch.device) -> None:
        self.preset, self.device = preset, device
        self.corpus = load_corpus(preset.corpus, context=preset.model.context, seed=0)
        self.model = Transformer(preset.model, 0).to(device)
        optimizer = resolve(OPTIMIZERS[preset.training.optimizer])
        self.optimizer: torch.optim.Optimizer = optimizer(self.model.parameters(), preset.training)
        self.count = 0

    def step(self) -> torch.Tensor:
        """One step; the loss is read, as every loop that shows one does."""
        training = self.preset.training
        tokens_BS = self.corpus.batch(self.count, training.batch, self.preset.model.context, 0).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(tokens_BS)
        loss.backward()
        self.optimizer.step()
        self.model.after_step()
        loss.item()
        self.count += 1
        return loss.detach()


def bench_preset() -> Preset:
    """Twelve layers of width 64, 512 tokens a step: the lesson's first preset."""
    return load_library().presets["post-ln"]


def _ratios(bare: Callable[[], object], probed: Callable[[], object], pairs: int) -> list[float]:
    """Time of a probed step divided by that of the bare one before it, for each of `pairs` pairs."""
    for _ in range(min(pairs, WARM_UP)):
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


def prepare() -> torch.device:
    """Set this process up as a lane's is; returns the device to train on."""
    warnings.simplefilter("ignore", ProbeWarning)  # the zoo's position embedding is no module that is called
    torch.set_num_threads(1)
    keep_freed_pages()
    return choose_device("auto")


# The budgets of the public probe, on the model and data of the shipped preset post-ln.
PROBES: dict[str, tuple[dict[str, Any], str]] = {
    "all default metrics": ({}, "≤ 1.03"),
    "gradients only": ({"metrics": ["grad_norm"]}, "≤ 1.015"),
    "every 10th step": ({"every": 10}, "≤ 1.005"),
}


def bench_probe(size: Size) -> list[Result]:
    """The public probe on a hand-written loop, run file included, against the bare step."""
    from gradtui.probe.probe import Probe

    device = prepare()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for name, (options, budget) in PROBES.items():
            bare, probed = BareLoop(bench_preset(), device), BareLoop(bench_preset(), device)
            run = Path(directory) / f"{name}.gradtui"
            with Probe(probed.model, probed.optimizer, run=run, layers="layers", **options) as probe:

                def step(probed: BareLoop = probed, probe: Probe = probe) -> None:
                    probe.log(loss=probed.step())

                ratios = _ratios(bare.step, step, size.count(PAIRS_PROBE))
            results.append(summarise(f"probe, {name}: step time, {device.type}", "the bare step", ratios, budget))
    return results


def bench_lane(size: Size) -> list[Result]:
    """A lane as the lab runs it, probe and run file included, against the bare loop's speed."""
    device = prepare()
    bare = BareLoop(bench_preset(), device)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(bench_preset(), seed=0, device=device.type, run=Path(directory) / "bench.gradtui")
        speeds = [1 / ratio for ratio in _ratios(bare.step, trainer.step, size.count(PAIRS_LANE))]
        trainer.close("done")
    return [summarise(f"lane: steps/s, {device.type}", "the bare loop", speeds, "≥ 0.95")]
