"""The command: what it prints, what it exits with, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from conftest import RunMaker
from warm import Done, WarmProcess

from gradtui.analysis.summary import summarise
from gradtui.runs.reader import RunReader

TINY = """
title = "tiny"
[model]
layers = 2
width = 16
heads = 2
context = 16
[training]
steps = 25
batch = 2
"""


Gradtui = Callable[..., Done]


@pytest.fixture
def gradtui(tmp_path: Path) -> Gradtui:
    """`gradtui(ARGUMENTS…, VARIABLE=…)` runs the command to its end."""

    def run(*arguments: str, **variables: str) -> Done:
        return warm.run(warm.command, *arguments, directory=tmp_path, variables=variables)

    return run


def installed(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the installed console script, as a user's shell would."""
    path = Path(sys.executable).with_name("gradtui")
    return subprocess.run([str(path), *arguments], capture_output=True, text=True, env={**os.environ, **variables})


@contextlib.contextmanager
def training(tmp_path: Path, presets: str, *, ignored: tuple[int, ...] = ()) -> Iterator[tuple[WarmProcess, Path]]:
    """`gradtui run` with a million steps to go, some taken; and its run file."""
    out = tmp_path / "x.gradtui"
    arguments = ("run", "tiny", "--presets", presets, "--steps", "1000000", "--out", str(out))
    process = WarmProcess(warm.command, *arguments, directory=tmp_path, ignored=ignored)
    try:
        until(lambda: out.exists() and last_step(out) >= 5)
        yield process, out
    finally:
        process.kill()


def until(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def last_step(run: Path) -> int:
    with contextlib.closing(RunReader(run)) as reader:
        return reader.last_step


@pytest.fixture
def presets(tmp_path: Path) -> str:
    directory = tmp_path / "presets"
    directory.mkdir()
    (directory / "tiny.toml").write_text(TINY)
    return str(directory)


def test_run_prints_one_json_object_as_its_last_line(gradtui: Gradtui, presets: str, tmp_path: Path) -> None:
    out = tmp_path / "x.gradtui"
    done = gradtui(
        "run", "tiny", "--presets", presets, "--steps", "12", "--seed", "3", "--out", str(out), "--json"
    )
    assert done.code == 0, done.err
    summary: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert summary["preset"] == "tiny"
    assert summary["run"] == str(out)
    assert summary["seed"] == 3
    assert summary["device"] == "cpu"
    assert summary["steps"] == 12
    reader = RunReader(out)
    losses = reader.losses()
    assert summary["loss"] == {"first": losses[0], "last": pytest.approx(losses[-10:].mean())}
    stream = reader.metric("stream_grad")[:, list(reader.stream_sites)].astype(float)
    ratios = stream[:, 0] / stream[:, -1]
    assert summary["flow_ratio"]["first"] == pytest.approx(ratios[0])
    assert summary["flow_ratio"]["last"] == pytest.approx(ratios[-1])
    assert summary["flow_ratio"]["min"] == pytest.approx(ratios.min())
    assert [site["kind"] for site in summary["sites"]] == [
        "embedding", "mixer", "feedforward", "mixer", "feedforward", "norm", "head",
    ]  # fmt: skip
    assert summary["sites"][1] == {"name": "layers.0.mixer", "layer": 0, "kind": "mixer"}
    assert summary["grad_norm"] == pytest.approx(reader.metric("grad_norm")[-1].tolist())
    assert summary["stream_grad"] == pytest.approx(stream[-1].tolist())
    assert len(summary["act_rms"]) == 3  # x_0, x_1, x_2
    assert summary["alarms"] == []
    assert summary["steps_per_second"] > 0
    assert done.err == ""  # no progress bar where there is no terminal


def test_numbers_that_are_not_finite_are_null_and_the_json_is_strict(make_run: RunMaker) -> None:
    from gradtui.metrics import SITE_METRICS
    from gradtui.runs.schema import Event, Frame

    def poison(frame: Frame) -> None:
        if frame.step == 2:
            frame.values[SITE_METRICS.index("grad_norm"), 3] = np.nan
            frame.values[SITE_METRICS.index("stream_grad"), 0] = np.inf

    path = make_run(
        losses=[3.0, 2.0, float("nan")], change=poison, events=[Event(2, "nonfinite", 3, None, "backward")]
    )
    text = json.dumps(summarise(RunReader(path)), allow_nan=False)
    summary = json.loads(text)
    assert summary["loss"]["last"] is None
    assert summary["grad_norm"][3] is None
    assert summary["stream_grad"][0] is None
    assert summary["flow_ratio"]["last"] is None
    assert summary["flow_ratio"]["min"] == pytest.approx(0.1)
    assert summary["alarms"] == [{"kind": "nonfinite", "step": 2, "site": "layers.1.mixer"}]


def test_the_same_seed_gives_the_same_numbers(gradtui: Gradtui, presets: str) -> None:
    lines = [json.loads(gradtui("run", "tiny", "--presets", presets, "--steps", "5", "--json").out) for _ in "ab"]
    for line in lines:
        del line["run"], line["steps_per_second"]
    assert lines[0] == lines[1]


def test_run_without_json_says_what_happened_in_words(gradtui: Gradtui, presets: str) -> None:
    done = gradtui("run", "tiny", "--presets", presets)
    assert done.code == 0
    assert "Healthy" in done.out
    assert "recorded in" in done.out
    chinese = gradtui("run", "tiny", "--presets", presets, LC_ALL="zh_CN.UTF-8")
    assert "健康" in chinese.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "post-lm"], r"there is no preset 'post-lm'; did you mean post-ln\?"),
        (["run", "post-ln", "--steps", "0"], r"'--steps': 0 is not in the range"),
        (["run", "post-ln", "--steps", "many"], r"'--steps': 'many' is not a valid integer"),
        (["run", "post-ln", "--seed", "-1"], r"'--seed': -1 is not in the range"),
        (["run", "post-ln", "--device", "tpu"], r"'--device': 'tpu' is not one of 'auto', 'cpu', 'cuda', 'mps'"),
        (["run", "post-ln", "--device", "mps"], r"device 'mps' is not available here"),
        (["run", "post-ln", "--seed", "18446744073709551616"], r"is not in the range"),
        (["run", "post-ln", "--out", "/not/there/x.gradtui"], r"the directory /not/there is not there"),
        (["bench", "nothing"], r"there is no benchmark 'nothing'; there are: probe, lane"),
        (["run"], r"Missing argument 'PRESET'"),
        (["fly"], r"No such command 'fly'"),
        (["--presets", "/not/there", "presets"], r"Directory '/not/there' does not exist"),
        (["watch", "/not/there.gradtui"], r"/not/there.gradtui is not there"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(
    gradtui: Gradtui, arguments: list[str], sentence: str
) -> None:
    done = gradtui(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert re.search(sentence, done.err)
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_a_bad_preset_hides_no_good_one_and_says_what_is_wrong_with_it(gradtui: Gradtui, presets: str) -> None:
    Path(presets, "bad.toml").write_text('title = "bad"\n[model]\nheads = 5\n')
    listed = gradtui("presets", "--presets", presets)
    assert listed.code == 1
    assert "tiny" in listed.out
    assert "post-ln" in listed.out
    assert re.search(r"bad\.toml: model\.heads = 5 does not divide model\.width = 64", listed.err)
    asked = gradtui("run", "bad", "--presets", presets)
    assert asked.code == 2
    assert "model.heads = 5" in asked.err
    assert gradtui("run", "tiny", "--presets", presets, "--steps", "1").code == 0


def test_presets_as_json_are_complete(gradtui: Gradtui) -> None:
    done = gradtui("presets", "--json")
    assert done.code == 0
    listed = json.loads(done.out)
    assert [preset["id"] for preset in listed][:7] == [
        "post-ln", "pre-ln", "post-rms", "pre-rms", "post-ln-warmup", "post-ln-deep", "pre-rms-100",
    ]  # fmt: skip
    assert listed[0]["model"]["topology"] == "post"
    assert listed[0]["training"]["lr"] == 1e-3


def test_an_existing_file_is_not_overwritten_by_run(gradtui: Gradtui, presets: str, tmp_path: Path) -> None:
    out = tmp_path / "x.gradtui"
    out.write_text("precious")
    done = gradtui("run", "tiny", "--presets", presets, "--out", str(out))
    assert done.code == 1
    assert "already exists" in done.err
    assert out.read_text() == "precious"


def test_a_file_that_is_no_run_is_refused_by_watch(gradtui: Gradtui, tmp_path: Path) -> None:
    path = tmp_path / "cat.gradtui"
    path.write_bytes(b"\xff\xd8 a cat")
    done = gradtui("watch", str(path))
    assert done.code == 1
    assert "is not a gradtui run file" in done.err


@pytest.mark.parametrize("command", [[], ["watch"]])
def test_without_a_terminal_the_screen_is_refused_in_one_sentence(
    gradtui: Gradtui, command: list[str], make_run: RunMaker
) -> None:
    files = [str(make_run())] if command else []
    for term in ("xterm-256color", "dumb"):
        done = gradtui(*command, *files, TERM=term)
        assert done.code == 1
        assert "needs a terminal" in done.err
        assert done.err.count("\n") == 1


def test_doctor_reports_versions_directories_and_presets(gradtui: Gradtui, tmp_path: Path) -> None:
    done = gradtui("doctor")
    assert done.code == 0
    for part in ("textual", "torch", "device", "threads", "colours", "data directory", "(writable)", "presets"):
        assert part in done.out
    (tmp_path / "file").write_text("")
    blocked = gradtui("doctor", GRADTUI_DATA_DIR=str(tmp_path / "file" / "data"))
    assert blocked.code == 1
    assert "✗ data directory" in blocked.out
    assert "not writable" in blocked.out


def test_a_data_directory_that_cannot_be_written_is_said_and_replaced(
    gradtui: Gradtui, presets: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = gradtui(
        "run",
        "tiny",
        "--presets",
        presets,
        "--steps",
        "2",
        "--json",
        GRADTUI_DATA_DIR=str(tmp_path / "file" / "x"),
        TMPDIR=str(tmp_path),
    )
    assert done.code == 0
    assert "cannot be written" in done.err
    assert Path(json.loads(done.out)["run"]).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_trained_and_says_where(presets: str, tmp_path: Path, number: int) -> None:
    with training(tmp_path, presets) as (process, out):
        process.send_signal(number)
        done = process.wait()
    assert done.code == 128 + number
    assert str(out) in done.err
    assert "Traceback" not in done.err
    reader = RunReader(out)
    assert reader.status == "stopped"
    assert len(reader.losses()) == reader.last_step + 1


def test_the_installed_command_lists_every_command_in_its_help() -> None:
    done = installed("--help")
    for command in ("run", "watch", "presets", "doctor", "bench"):
        assert re.search(rf"^  {command}\s", done.stdout, re.MULTILINE)


def test_what_a_parent_told_to_ignore_stays_ignored(presets: str, tmp_path: Path) -> None:
    with training(tmp_path, presets, ignored=(signal.SIGHUP,)) as (process, out):
        process.send_signal(signal.SIGHUP)
        here = last_step(out)
        until(lambda: last_step(out) > here + 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait().code == 128 + signal.SIGTERM


def test_output_that_cannot_show_a_character_is_no_reason_to_fail() -> None:
    done = installed("presets", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "post-ln" in done.stdout


def test_a_data_directory_of_nobody_is_one_sentence(gradtui: Gradtui, presets: str) -> None:
    done = gradtui("runs", "rm", "anything", "--yes", GRADTUI_DATA_DIR="~nosuchuser/x")
    assert done.code == 2
    assert done.err.count("\n") == 1
