"""Optimizers, and the schedules that scale their learning rate.

The training loop sets `lr = config.lr * schedule(step, config)` before step `step`, counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gradtui.presets import TrainingConfig

COSINE_FLOOR = 0.1  # a cosine ends at a tenth of the peak, as in GPT-3's and LLaMA's recipes


def adamw(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019, algorithm 2), ε = 1e-8; weight decay on matrices only."""
    # foreach also on the CPU, where torch's default is one Python iteration a tensor.
    return torch.optim.AdamW(_groups(parameters, config), lr=config.lr, betas=config.betas, foreach=True)


def sgd(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Stochastic gradient descent with heavy-ball momentum (0 = plain); weight decay on matrices only."""
    return torch.optim.SGD(_groups(parameters, config), lr=config.lr, momentum=config.momentum, foreach=True)


def constant(step: int, config: TrainingConfig) -> float:
    """Linear warm-up, then 1. A multiplier of the peak learning rate in (0, 1]."""
    return _warmup(step, config)


def cosine(step: int, config: TrainingConfig) -> float:
    """Linear warm-up, then half a cosine from 1 to 0.1 at `config.steps`, and 0.1 for any step after that."""
    if step < config.warmup:
        return _warmup(step, config)
    progress = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    return COSINE_FLOOR + (1 - COSINE_FLOOR) * (1 + math.cos(math.pi * progress)) / 2


def _warmup(step: int, config: TrainingConfig) -> float:
    """(step + 1) / warmup, up to 1: the first step already moves, step `warmup - 1` is at the peak."""
    return min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0


def _groups(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> list[dict[str, Any]]:
    """One group with weight decay (matrices), one without: decay would pull every γ from 1 towards 0."""
    everything = list(parameters)
    matrices = [parameter for parameter in everything if parameter.ndim >= 2]
    vectors = [parameter for parameter in everything if parameter.ndim < 2]
    groups = [(matrices, config.weight_decay), (vectors, 0.0)]
    return [{"params": group, "weight_decay": decay} for group, decay in groups if group]
