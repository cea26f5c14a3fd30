"""The meter's numbers equal an independent autograd computation, and measuring changes nothing."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from zoo.parts import VARIATIONS, legal

from gradtui.metrics import SITE_METRICS
from gradtui.presets import ModelConfig
from gradtui.probe.discovery import sites_of_modules
from gradtui.probe.meter import Meter
from gradtui.probe.transfer import StepTag, Transfer
from gradtui.runs.schema import ABSENT, Site
from gradtui.zoo.model import Transformer

CPU = torch.device("cpu")


class Measured:
    """A model with a meter on it; `step` takes one step of an optimizer and returns loss and metrics × sites."""

    def __init__(self, model: nn.Module, sites, optimizer: torch.optim.Optimizer) -> None:  # type: ignore[no-untyped-def]
        self.model, self.optimizer = model, optimizer
        self.meter, self.transfer = Meter(sites_of_modules(sites), SITE_METRICS), Transfer(CPU)
        self.meter.attach()

    def step(self, loss: Tensor):  # type: ignore[no-untyped-def]
        loss.backward()
        self.meter.read_gradients()
        self.meter.before_step()
        self.optimizer.step()
        if isinstance(self.model, Transformer):
            self.model.after_step()
        self.meter.after_step()
        [pending] = self.transfer.send(StepTag(0, 0.0, 0.0), self.meter.take(), {"loss": loss})
        measured = pending.open()
        return measured.scalars["loss"], measured.values(SITE_METRICS)


def tokens(step: int) -> Tensor:
    return torch.randint(0, 256, (2, 9), generator=torch.Generator().manual_seed(step))


def independent(model: Transformer, batch: Tensor, step_model) -> dict[str, list[float]]:  # type: ignore[no-untyped-def]
    """Every metric by plain autograd in float64 reductions: no hook, no foreach, no shared code."""
    outputs: list[Tensor] = []
    x = model.embedding(batch[:, :-1])
    outputs.append(x)
    wiring = type(model.layers[0].mixer)
    state = wiring.enter(x, model.config)
    for layer in model.layers:
        for sublayer in (layer.mixer, layer.feedforward):
            state = sublayer(state)
            outputs.append(state if isinstance(state, Tensor) else state[0])  # the stream comes first
    x = wiring.leave(state)
    if getattr(model, "final_norm", None) is not None:
        x = model.final_norm(x)
        outputs.append(x)
    logits = model.head(x)
    outputs.append(logits)
    loss = nn.functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
    owners = [module for _, module in model.sites()]
    parameters = [list(module.parameters()) for module in owners]
    flat = [p for group in parameters for p in group]
    grads = torch.autograd.grad(loss, [*outputs, *flat])
    stream_grads, weight_grads = grads[: len(outputs)], list(grads[len(outputs) :])

    def norm(tensors) -> float:  # type: ignore[no-untyped-def]
        return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))

    before = [[p.detach().clone() for p in group] for group in parameters]
    step_model()
    expected: dict[str, list[float]] = {name: [] for name in SITE_METRICS}
    for index, output in enumerate(outputs):
        x64 = output.detach().double()
        count = len(parameters[index])
        mine = [weight_grads.pop(0) for _ in range(count)]
        weight = norm(before[index])
        delta = norm([a - b.detach() for a, b in zip(before[index], parameters[index], strict=True)])
        expected["grad_norm"].append(norm(mine) if count else ABSENT)
        expected["act_rms"].append(float(x64.square().mean().sqrt()))
        expected["stream_grad"].append(norm([stream_grads[index]]))
        expected["weight_norm"].append(weight if count else ABSENT)
        expected["update_ratio"].append(delta / weight if count else ABSENT)
        expected["mean_share"].append(float(x64.mean(-1).square().sum() / x64.square().mean(-1).sum()))
    return expected


CASES = VARIATIONS | {
    f"{norm} {topology} {feedforward}": legal(norm=norm, topology=topology, feedforward=feedforward)
    for norm, topology, feedforward in product(
        ("layernorm", "rmsnorm", "none"), ("post", "pre"), ("relu", "gelu", "swiglu")
    )
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_equals_plain_autograd(case: str) -> None:
    config = CASES[case]
    probed, plain = Transformer(config, 1), Transformer(config, 1)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (probed, plain)]
    measured = Measured(probed, probed.sites(), optimizers[0])
    for step in range(3):
        loss = probed.loss(tokens(step))
        optimizers[0].zero_grad()
        measured_loss, values = measured.step(loss)
        assert measured_loss == loss.item()

        def step_plain(step: int = step) -> None:
            optimizers[1].zero_grad()
            plain.loss(tokens(step)).backward()
            optimizers[1].step()
            plain.after_step()

        expected = independent(plain, tokens(step), step_plain)
        for row, name in enumerate(SITE_METRICS):
            # A mean that the norm has removed is rounding noise: nothing to be relatively exact about.
            absolute = 1e-12 if name == "mean_share" else 0
            np.testing.assert_allclose(values[row], expected[name], rtol=1e-5, atol=absolute, err_msg=name)


def test_the_loss_is_bit_identical_with_and_without_the_probe() -> None:
    config = ModelConfig(layers=2, width=16, heads=2, context=8)
    losses: list[list[float]] = []
    for probed in (True, False):
        model = Transformer(config, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        measured = Measured(model, model.sites(), optimizer) if probed else None
        mine = []
        for step in range(10):
            optimizer.zero_grad()
            loss = model.loss(tokens(step))
            if measured:
                measured.step(loss)
            else:
                loss.backward()
                optimizer.step()
            mine.append(loss.item())
        losses.append(mine)
        states = torch.random.get_rng_state()
    assert losses[0] == losses[1]
    assert torch.equal(states, torch.random.get_rng_state())


def test_after_detach_the_model_carries_no_hook() -> None:
    model = Transformer(ModelConfig(layers=1, width=16, heads=2, context=8), 0)
    meter = Meter(sites_of_modules(model.sites()), SITE_METRICS)
    meter.attach()
    meter.detach()
    assert not any(module._forward_hooks for module in model.modules())


def test_a_pass_without_gradient_is_not_measured() -> None:
    model = Transformer(ModelConfig(layers=1, width=16, heads=2, context=8), 0)
    measured = Measured(model, model.sites(), torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model.loss(tokens(0))
    with torch.no_grad():
        model.loss(tokens(1) * 0)
    _, values = measured.step(loss)
    with torch.no_grad():
        reference = Transformer(ModelConfig(layers=1, width=16, heads=2, context=8), 0)
        x = reference.embedding(tokens(0)[:, :-1])
    np.testing.assert_allclose(values[SITE_METRICS.index("act_rms"), 0], x.square().mean().sqrt(), rtol=1e-5)


def test_unused_parameters_have_no_gradient_rather_than_a_zero_one() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    model = Two()
    sites = [
        (Site("used", 0, "mixer", 0), model.used),
        (Site("unused", 1, "mixer", None), model.unused),
    ]
    measured = Measured(model, sites, torch.optim.SGD(model.parameters(), lr=0.1))
    _, values = measured.step(model.used(torch.ones(2, 4)).sum())
    row = values[SITE_METRICS.index("grad_norm")]
    assert row[0] > 0
    assert row[1] == ABSENT
