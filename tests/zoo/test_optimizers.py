"""Schedules and optimizers do what their names say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradtui.presets import TrainingConfig
from gradtui.zoo.optimizers import adamw, constant, cosine, sgd


@pytest.mark.parametrize("schedule", [constant, cosine])
def test_warm_up_rises_linearly_and_ends_at_the_peak(schedule):
    config = TrainingConfig(steps=400, warmup=100)
    assert schedule(0, config) == pytest.approx(0.01)
    assert schedule(49, config) == pytest.approx(0.5)
    assert schedule(99, config) == 1.0
    assert schedule(100, config) == 1.0


def test_without_warm_up_the_first_step_is_at_the_peak():
    assert constant(0, TrainingConfig()) == 1.0
    assert cosine(0, TrainingConfig()) == 1.0


def test_constant_stays_and_cosine_falls_to_a_tenth():
    config = TrainingConfig(steps=300, warmup=100)
    assert constant(10_000, config) == 1.0
    assert cosine(200, config) == pytest.approx(0.1 + 0.9 / 2)
    assert cosine(300, config) == pytest.approx(0.1)
    assert cosine(10_000, config) == pytest.approx(0.1), "a lane that is given more steps stays at the floor"
    values = [cosine(step, config) for step in range(100, 300)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("schedule", [constant, cosine])
@pytest.mark.parametrize("warmup", [0, 1, 7, 10])
def test_every_multiplier_is_in_zero_to_one(schedule, warmup):
    config = TrainingConfig(steps=10, warmup=warmup)
    assert all(0 < schedule(step, config) <= 1 for step in range(30))


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((2, 2), 2.0)), nn.Parameter(torch.full((2,), 2.0))]


def test_first_adamw_step_moves_by_the_learning_rate_against_the_sign_of_the_gradient():
    weights = parameters()
    optimizer = adamw(weights, TrainingConfig(lr=0.01))
    for weight in weights:
        weight.grad = torch.full_like(weight, 3.0)
    optimizer.step()
    for weight in weights:
        torch.testing.assert_close(weight.detach(), torch.full_like(weight, 1.99))


def test_adamw_takes_its_betas_from_the_preset():
    optimizer = adamw(parameters(), TrainingConfig(betas=(0.8, 0.9), lr=0.5))
    assert all(group["betas"] == (0.8, 0.9) and group["lr"] == 0.5 for group in optimizer.param_groups)


@pytest.mark.parametrize("build", [adamw, sgd])
def test_weight_decay_spares_gains_and_biases(build):
    matrix, vector = parameters()
    optimizer = build([matrix, vector], TrainingConfig(lr=0.1, weight_decay=0.5))
    for weight in (matrix, vector):
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(matrix.detach(), torch.full((2, 2), 2.0 * (1 - 0.1 * 0.5)))
    assert torch.equal(vector.detach(), torch.full((2,), 2.0))


def test_sgd_is_w_minus_lr_g_with_momentum():
    (weight, _) = parameters()
    optimizer = sgd([weight], TrainingConfig(lr=0.1, momentum=0.5))
    for expected in (2 - 0.1, 2 - 0.1 - 0.15):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        torch.testing.assert_close(weight.detach(), torch.full((2, 2), expected))


def test_adamw_equals_the_published_algorithm():
    """Loshchilov & Hutter 2019, algorithm 2, written out in float64."""
    config = TrainingConfig(lr=0.01, betas=(0.9, 0.98), weight_decay=0.1)
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(3, 2, dtype=torch.float64))
    optimizer = adamw([weight], config)
    theta = weight.detach().clone()
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    for t in range(1, 6):
        gradient = torch.randn(3, 2, dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.step()
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.98**t)
        theta = theta * (1 - 0.01 * 0.1) - 0.01 * m_hat / (v_hat.sqrt() + 1e-8)
        torch.testing.assert_close(weight.detach(), theta, rtol=1e-12, atol=1e-12)
    assert math.isfinite(float(weight.detach().sum()))
