"""Models whose parts or frozen layers change between steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradtui.probe.model_watch import CHECK_EVERY, Changed, ModelWatch
from gradtui.probe.probe import Probe
from gradtui.probe.recorder import ProbeWarning
from probe.conftest import WIDTH, Net, Recorded, loss_of, norm, seeded


def test_layers_that_are_unfrozen_later_are_measured_from_then_on(tmp_path: Path) -> None:
    model = seeded(Net)
    model.layers[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(4):
            if step == 2:
                model.layers[0].requires_grad_(True)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    run = Recorded(tmp_path / "a.gradtui")
    column = run.names.index("layers.0")
    assert np.isnan(run.tables["grad_norm"][:2, column]).all()
    assert (run.tables["grad_norm"][2:, column] > 0).all()
    assert (run.tables["update_ratio"][2:, column] > 0).all()


def test_a_layer_that_is_replaced_is_measured_at_the_site_of_the_old_one(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(4):
            if step == 2:
                model.head = nn.Linear(WIDTH, 2)
                optimizer.add_param_group({"params": list(model.head.parameters())})
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        expected = norm(p.grad for p in model.head.parameters())
    run = Recorded(tmp_path / "a.gradtui")
    assert run.value("grad_norm", "head", 3) == pytest.approx(expected, rel=1e-5)
    assert run.value("act_rms", "head", 3) > 0
    assert run.facts["blind"] == []


def test_a_layer_that_is_added_is_not_measured_which_a_sentence_says(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.warns(ProbeWarning, match="extra"), Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(3):
            if step == 1:
                model.extra = nn.Linear(WIDTH, 2)
                optimizer.add_param_group({"params": list(model.extra.parameters())})
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    assert "extra.weight, extra.bias" in Recorded(tmp_path / "a.gradtui").facts["blind"][0]


def watched() -> tuple[Net, torch.optim.Optimizer, ModelWatch]:
    model = Net()
    model.layers[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, ModelWatch(model, [optimizer])


def test_nothing_is_reported_where_nothing_has_changed() -> None:
    _, _, watch = watched()
    assert [watch.check() for _ in range(2 * CHECK_EVERY)] == [None] * (2 * CHECK_EVERY)


def test_unfrozen_parameters_are_reported_once_and_are_trainable_from_then_on() -> None:
    model, _, watch = watched()
    assert watch.trainable.isdisjoint(model.layers[0].parameters())
    model.layers[0].requires_grad_(True)
    assert watch.check() == Changed(None)
    assert watch.check() is None
    model.layers[0].requires_grad_(False)
    assert watch.check() is None
    assert watch.trainable == set(model.parameters())


def test_a_replaced_part_is_reported_with_the_names_of_the_old_modules() -> None:
    model, optimizer, watch = watched()
    old, model.head = model.head, nn.Linear(WIDTH, 2)
    optimizer.add_param_group({"params": list(model.head.parameters())})
    changed = watch.check()
    assert changed is not None
    assert changed.names is not None
    assert changed.names[old] == "head"
    assert model.head not in changed.names
    assert watch.trainable.issuperset(model.head.parameters())
    assert watch.check() is None


def test_a_part_that_is_replaced_without_telling_the_optimizer_is_noticed_within_some_checks() -> None:
    model, _, watch = watched()
    model.head = nn.Linear(WIDTH, 2)
    assert [watch.check() is not None for _ in range(CHECK_EVERY)].count(True) == 1


def test_what_was_replaced_before_the_beginning_is_not_reported() -> None:
    model, _, watch = watched()
    model.head = nn.Linear(WIDTH, 2)
    watch.begin()
    assert [watch.check() for _ in range(CHECK_EVERY)] == [None] * CHECK_EVERY


def test_owners_are_the_parameters_of_each_optimizer() -> None:
    model, optimizer, watch = watched()
    assert watch.owners() == [frozenset(model.parameters())]
    assert ModelWatch(model, []).owners() == [frozenset()]
    optimizer.zero_grad()
    assert watch.has_no_gradient()
    loss_of(model, 0).backward()
    assert not watch.has_no_gradient()


def test_numbers_of_one_optimizer_survive_a_change_before_the_step_of_the_next(tmp_path: Path) -> None:
    model, reference = seeded(Net), seeded(Net)
    model.layers[1].requires_grad_(False)
    sides = [[*model.layers.parameters()], [*model.embedding.parameters(), *model.head.parameters()]]
    first, second = (torch.optim.SGD(side, lr=0.05) for side in sides)
    with Probe(model, [first, second], run=tmp_path / "a.gradtui"):
        for step in range(2):
            loss_of(model, step).backward()
            first.step()
            if step == 1:
                model.layers[1].requires_grad_(True)
            second.step()
            first.zero_grad()
            second.zero_grad()
    run = Recorded(tmp_path / "a.gradtui")
    loss_of(reference, 0).backward()
    expected = norm(p.grad for p in reference.layers[0].parameters())
    assert run.value("grad_norm", "layers.0", 0) == pytest.approx(expected, rel=1e-5)
    assert run.value("grad_norm", "layers.0", 1) > 0
    assert run.value("update_ratio", "layers.0", 1) > 0
