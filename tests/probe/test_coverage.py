"""What cannot be measured is named in a sentence, with the reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.accumulator import GRAD, STREAM_GRAD, StepAccumulator
from gradtui.probe.coverage import Coverage
from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from probe.conftest import Net, Recorded, batch, loss_of, norm, seeded


@pytest.mark.parametrize("when", ["before attaching", "after attaching"])
@pytest.mark.parametrize("how", ["blocks replaced", "blocks in place"])
def test_compiled_blocks_give_full_numbers(how: str, when: str, tmp_path: Path) -> None:
    def compile_blocks(model: nn.Module) -> None:
        for index, block in enumerate(model.layers):
            if how == "blocks in place":
                block.compile(backend="aot_eager", fullgraph=True)
            else:
                model.layers[index] = torch.compile(block, backend="aot_eager", fullgraph=True)

    model = seeded(Net)
    if when == "before attaching":
        compile_blocks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProbeWarning)
        with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
            for step in range(4):
                if step == 1 and when == "after attaching":
                    compile_blocks(model)
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    assert run.names == ["embedding", "layers.0", "layers.1", "layers.2", "head"]
    plain = seeded(Net)
    x = plain.embedding(batch(3))
    x.retain_grad()
    y = x
    for block in plain.layers:
        y = block(y)
    plain.head(y).square().mean().backward()
    assert run.value("grad_norm", "layers.1", 3) == pytest.approx(
        norm(p.grad for p in plain.layers[1].parameters()), rel=1e-5
    )
    assert run.value("stream_grad", "embedding", 3) == pytest.approx(norm([x.grad]), rel=1e-5)
    assert (run.tables["stream_grad"][3] > 0).all()
    assert run.facts["blind"] == []


@pytest.mark.parametrize("when", ["before attaching", "after attaching"])
def test_a_model_compiled_whole_gives_its_weights_and_a_sentence_about_the_rest(when: str, tmp_path: Path) -> None:
    model = seeded(Net)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    given = compiled if when == "before attaching" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        pytest.warns(ProbeWarning, match=r"cannot be seen.*hook"),
        Probe(given, optimizer, run=tmp_path / "a.gradtui"),
    ):
        for step in range(5):
            optimizer.zero_grad()
            loss_of(compiled, step).backward()
            optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    plain = seeded(Net)
    last = int(run.steps[-1])
    loss_of(plain, last).backward()
    expected = norm(p.grad for p in plain.layers[1].parameters())
    assert run.value("grad_norm", "layers.1", -1) == pytest.approx(expected, rel=1e-5)
    assert [s.layer for s in run.sites] == [None, 0, 1, 2, None]
    [sentence] = run.facts["blind"]
    assert "activations and stream gradients of all 5 sites cannot be seen" in sentence


def test_a_model_inside_torch_func_is_named_as_out_of_sight(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().mean()

    with (
        pytest.warns(ProbeWarning, match=r"torch\.func"),
        Probe(model, optimizer, run=tmp_path / "a.gradtui"),
    ):
        for step in range(5):
            torch.func.grad(loss)(parameters, batch(step))
            torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch(step))
            optimizer.step()
    assert any("torch.func" in sentence for sentence in Recorded(tmp_path / "a.gradtui").facts["blind"])


NAMES = [f"layers.{index}" for index in range(6)]


def step_with(streams: Iterable[int], gradients: Iterable[int] = range(6)) -> StepAccumulator:
    """A step that has measured streams and gradients at these sites."""
    step = StepAccumulator.empty(len(NAMES))
    for row, sites in ((STREAM_GRAD, streams), (GRAD, gradients)):
        for site in sites:
            step.extend([torch.ones(())], [row * len(NAMES) + site])
    return step


def coverage(stream_sites: Iterable[int] = range(6)) -> Coverage:
    return Coverage(NAMES, frozenset({STREAM_GRAD, GRAD}), stream_sites)


def observe(one: Coverage, step: StepAccumulator, *, compiled: bool = False) -> list[str]:
    return one.observe(step, {}, is_compiled=compiled) if one.is_due(step) else []


def test_a_step_that_has_measured_everything_gives_no_sentence_and_is_observed_once() -> None:
    one = coverage()
    assert observe(one, step_with(range(6))) == []
    assert not one.is_in_doubt
    assert not one.is_due(step_with(range(6)))
    assert one.is_due(step_with(range(5)))


def test_what_is_missing_is_in_doubt_first_and_a_sentence_at_the_next_step() -> None:
    one = coverage()
    assert observe(one, step_with([0, 1])) == []
    assert one.is_in_doubt
    assert one.suspected
    [sentence] = observe(one, step_with([0, 1]))
    assert not one.is_in_doubt
    assert sentence == (
        "activations and stream gradients of layers.2, layers.3, layers.4, layers.5 cannot be seen: they are not "
        "called as modules, so no hook hears them; gradients and updates of the weights are complete"
    )


def test_what_is_missing_only_once_gives_no_sentence() -> None:
    one = coverage()
    observe(one, step_with([0, 1]))
    assert observe(one, step_with(range(6))) == []
    assert one.suspected == []


def test_a_compiled_model_is_named_as_the_reason() -> None:
    one = coverage()
    observe(one, step_with([]), compiled=True)
    [sentence] = observe(one, step_with([]), compiled=True)
    assert "of all 6 sites cannot be seen: they are inside a graph of torch.compile" in sentence


def test_the_error_of_a_hook_is_named_as_the_reason_once_for_all_its_sites() -> None:
    one, errors = coverage(), dict.fromkeys(range(5), "RuntimeError: no")
    for _ in range(2):
        sentences = one.observe(step_with([5]), errors, is_compiled=False)
    assert sentences == [
        "activations and stream gradients of layers.0, layers.1, layers.2, layers.3 and 1 more sites "
        "cannot be seen: RuntimeError: no"
    ]


def test_a_site_without_a_hook_or_a_gradient_is_not_missing() -> None:
    one = coverage(stream_sites=[0, 1, 2])
    assert observe(one, step_with([0, 1], gradients=[0, 1, 3, 4, 5])) == []
    assert one.suspected == []


def test_a_step_without_any_gradient_has_a_sentence_of_its_own() -> None:
    one = coverage()
    observe(one, step_with(range(6), gradients=[]))
    [sentence] = observe(one, step_with(range(6), gradients=[]))
    assert sentence.startswith("no parameter has a gradient")


def test_a_model_that_changes_at_every_step_is_not_looked_into_for_ever() -> None:
    one = coverage()
    for number in range(200):
        observe(one, step_with(range(number % 2 + 4)))
    assert not one.is_due(step_with(range(6)))


def test_many_passes_without_a_step_are_named_once_until_the_next_step() -> None:
    one = coverage()
    assert [len(one.pass_without_step(7)) for _ in range(4)] == [0, 1, 0, 0]
    one.step_done()
    assert one.pass_without_step(8) == []
    [sentence] = one.pass_without_step(8)
    assert "has not stepped since step 8" in sentence
