"""The summary of any run, whatever it has measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gradtui.analysis.summary import summarise
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Frame, Site
from gradtui.runs.writer import RunWriter


def _stack(name: str, layer: int, point: int) -> list[Site]:
    blocks = [Site(f"{name}.{i}", layer + i, "block", point + 1 + i, name) for i in range(2)]
    return [Site(f"{name}.in", None, "input", point, name), *blocks]


TWO_STACKS = [*_stack("encoder", 0, 0), *_stack("decoder", 2, 3)]


def _summary(path: Path, sites: list[Site], metrics: tuple[str, ...], frames: list[Frame]) -> dict[str, object]:
    facts = {"source": "script", "name": "mine", "script": "train.py -x", "output": ""}
    with RunWriter(path, sites, facts, metrics=metrics) as writer:
        for frame in frames:
            writer.append(frame)
    text = json.dumps(summarise(RunReader(path)), allow_nan=False)
    summary: dict[str, object] = json.loads(text)
    return summary


def _frame(step: int, values: object, loss: float | None = None) -> Frame:
    return Frame(step, 0.0, 0.1, loss, None, np.array(values, np.float32))


def test_a_script_without_steps(tmp_path: Path) -> None:
    summary = _summary(tmp_path / "a.gradtui", TWO_STACKS, ("grad_norm",), [])
    assert summary["steps"] == 0
    assert summary["loss"] == {"first": None, "last": None}
    assert summary["flow_ratio"] == {"first": None, "last": None, "min": None}
    assert summary["preset"] is None
    assert (summary["name"], summary["script"]) == ("mine", "train.py -x")


def test_a_script_without_stream_or_loss_has_its_flow_from_the_weights(tmp_path: Path) -> None:
    sites = [Site(name, index, "module") for index, name in enumerate(("a", "b", "c"))]
    frames = [_frame(0, [[1, ABSENT, 4]]), _frame(5, [[ABSENT, 1, 2]])]
    summary = _summary(tmp_path / "a.gradtui", sites, ("grad_norm",), frames)
    assert summary["flow_ratio"] == {"first": 0.25, "last": 0.5, "min": 0.25}
    assert summary["grad_norm"] == [None, 1.0, 2.0]
    assert summary["act_rms"] == summary["stream_grad"] == []
    assert summary["loss"] == {"first": None, "last": None}
    assert summary["steps"] == 2


def test_of_two_stacks_the_one_that_is_worse_off_speaks_for_the_model(tmp_path: Path) -> None:
    good, bad = [1, 1, 1], [1e-4, 1, 1]
    frames = [_frame(0, [good + good], 3.0), _frame(1, [good + bad], 2.0)]
    summary = _summary(tmp_path / "a.gradtui", TWO_STACKS, ("stream_grad",), frames)
    assert summary["flow_ratio"] == pytest.approx({"first": 1.0, "last": 1e-4, "min": 1e-4})
    assert summary["stream_grad"] == pytest.approx(good + bad)
    assert summary["grad_norm"] == []
    assert summary["loss"] == {"first": 3.0, "last": 2.5}


def test_a_bounded_run_says_how_many_steps_there_were_and_which_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    with RunWriter(path, TWO_STACKS, {}, metrics=("stream_grad",), keep=32) as writer:
        for step in range(1000):
            writer.append(_frame(step, np.ones((1, 6)), 1.0))
    summary = summarise(RunReader(path))
    assert summary["steps"] == 1000
    assert summary["thinned"][0] == 256
    assert 1000 - 32 - 16 <= summary["thinned"][1] <= 1000 - 32
