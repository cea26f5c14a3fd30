"""What the lesson's presets must show, measured on three seeds without the project's own probe.

Bands are wide on purpose: they are claims about the phenomenon, and have to hold on another CPU's rounding.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import pytest
import torch

from gradtui.presets import load_preset, shipped_directory
from gradtui.presets.parts import OPTIMIZERS, SCHEDULES, resolve
from gradtui.zoo.corpus import TextCorpus, load_corpus
from gradtui.zoo.model import Transformer

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Curves:
    """Loss and flow ratio ‖∂L/∂x_0‖ / ‖∂L/∂x_L‖ of every step."""

    loss: list[float]
    ratio: list[float]

    def loss_at(self, step: int) -> float:
        """Mean loss of the ten steps that end at `step`."""
        return sum(self.loss[step - 10 : step]) / 10


@functools.cache
def measure(name: str, seed: int, steps: int = 200) -> Curves:
    """Train a shipped preset with a bare loop; the forward pass is spelled out to keep x_0 and x_L."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        preset = load_preset(shipped_directory() / f"{name}.toml")
        training, context = preset.training, preset.model.context
        model = Transformer(preset.model, seed)
        corpus = load_corpus(preset.corpus, context=context, seed=seed)
        optimizer = resolve(OPTIMIZERS[training.optimizer])(model.parameters(), training)
        schedule = resolve(SCHEDULES[training.schedule])
        losses, ratios = [], []
        for step in range(steps):
            tokens_BS = corpus.batch(step, training.batch, context, seed)
            x_BTD = first_BTD = model.embedding(tokens_BS[:, :-1])
            for layer in model.layers:
                x_BTD = layer(x_BTD)
            last_BTD = x_BTD
            first_BTD.retain_grad()
            last_BTD.retain_grad()
            if model.final_norm is not None:
                x_BTD = model.final_norm(x_BTD)
            logits_BTV = model.head(x_BTD)
            loss = torch.nn.functional.cross_entropy(logits_BTV.transpose(1, 2), tokens_BS[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = training.lr * schedule(step, training)
            optimizer.step()
            losses.append(loss.item())
            ratios.append(float(first_BTD.grad.norm() / last_BTD.grad.norm()))
        return Curves(losses, ratios)
    finally:
        torch.set_num_threads(threads)


def byte_frequency_loss(seed: int, start: int = 190, stop: int = 200) -> float:
    """The loss, on the batches of some steps, of a model that knows byte frequencies and nothing else."""
    corpus = load_corpus("stdlib", context=64, seed=seed)
    assert isinstance(corpus, TextCorpus)
    counts_V = torch.bincount(torch.from_numpy(corpus.text.copy()).int(), minlength=256) + 1
    logs_V = (counts_V / counts_V.sum()).log()
    targets = torch.cat([corpus.batch(step, 8, 64, seed)[:, 1:] for step in range(start, stop)])
    return -float(logs_V[targets].mean())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["post-ln", "pre-ln", "post-rms", "pre-rms", "post-ln-warmup"])
def test_at_step_zero_every_twelve_layer_preset_is_healthy(name, seed):
    """Collapse is an effect of the first Adam steps, not of initialisation."""
    assert 0.5 <= measure(name, seed, steps=1).ratio[0] <= 3


@pytest.mark.parametrize(("name", "bound"), [("post-ln", 1e-2), ("post-ln-deep", 1e-3)])
def test_post_ln_has_collapsed_by_step_twenty(name, bound):
    assert measure(name, seed=0, steps=21).ratio[20] < bound


def test_pre_ln_has_not():
    assert min(measure("pre-ln", seed=0, steps=21).ratio) > 1


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestThreeSeeds:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize(("name", "bound"), [("post-ln", 1e-2), ("post-rms", 1e-2), ("post-ln-deep", 1e-3)])
    def test_post_norm_collapses_and_sticks(self, name, bound, seed):
        curves = measure(name, seed)
        assert curves.ratio[20] < bound
        assert 2.9 < curves.loss_at(200) < 3.3
        assert curves.loss_at(200) == pytest.approx(byte_frequency_loss(seed), abs=0.05)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("name", ["pre-ln", "pre-rms"])
    def test_pre_norm_keeps_its_gradient_and_learns(self, name, seed):
        curves = measure(name, seed)
        assert min(curves.ratio) > 1
        assert curves.loss_at(200) < 2.65

    @pytest.mark.parametrize("seed", SEEDS)
    def test_warm_up_brings_the_gradient_back(self, seed):
        curves = measure("post-ln-warmup", seed)
        assert min(curves.ratio[:100]) < 0.1
        assert max(curves.ratio[101:]) > 0.1
        pre, post = measure("pre-ln", seed).loss_at(200), measure("post-ln", seed).loss_at(200)
        assert pre < curves.loss_at(200) < post

    @pytest.mark.parametrize("seed", SEEDS)
    def test_leaving_out_the_mean_changes_next_to_nothing_in_a_pre_norm_stack(self, seed):
        layernorm, rmsnorm = measure("pre-ln", seed), measure("pre-rms", seed)
        assert abs(layernorm.loss_at(200) - rmsnorm.loss_at(200)) < 0.1

    @pytest.mark.parametrize("seed", SEEDS)
    def test_one_hundred_pre_norm_layers_train(self, seed):
        curves = measure("pre-rms-100", seed, steps=60)
        assert all(math.isfinite(loss) for loss in curves.loss)
        assert min(curves.ratio) > 0.5
        assert curves.loss_at(60) < curves.loss_at(10) - 1
