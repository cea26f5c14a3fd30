"""The installed command: what it prints, what it exits with, what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunMaker

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


def gradtui(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed console script, as a user's shell would."""
    script = Path(sys.executable).with_name("gradtui")
    return subprocess.run(
        [str(script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=100,
    )


@pytest.fixture
def presets(tmp_path: Path) -> str:
    directory = tmp_path / "presets"
    directory.mkdir()
    (directory / "tiny.toml").write_text(TINY)
    return str(directory)


def test_run_prints_one_json_object_as_its_last_line(presets: str, tmp_path: Path) -> None:
    out = tmp_path / "x.gradtui"
    done = gradtui(
        "run", "tiny", "--presets", presets, "--steps", "12", "--seed", "3", "--out", str(out), "--json"
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
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
    assert done.stderr == ""  # no progress bar where there is no terminal


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


def test_the_same_seed_gives_the_same_numbers(presets: str) -> None:
    lines = [
        json.loads(gradtui("run", "tiny", "--presets", presets, "--steps", "5", "--json").stdout) for _ in "ab"
    ]
    for line in lines:
        del line["run"], line["steps_per_second"]
    assert lines[0] == lines[1]


def test_run_without_json_says_what_happened_in_words(presets: str) -> None:
    done = gradtui("run", "tiny", "--presets", presets)
    assert done.returncode == 0
    assert "Healthy" in done.stdout
    assert "recorded in" in done.stdout
    chinese = gradtui("run", "tiny", "--presets", presets, LC_ALL="zh_CN.UTF-8")
    assert "健康" in chinese.stdout


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
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    done = gradtui(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(sentence, done.stderr)
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_bad_preset_hides_no_good_one_and_says_what_is_wrong_with_it(presets: str) -> None:
    Path(presets, "bad.toml").write_text('title = "bad"\n[model]\nheads = 5\n')
    listed = gradtui("presets", "--presets", presets)
    assert listed.returncode == 1
    assert "tiny" in listed.stdout
    assert "post-ln" in listed.stdout
    assert re.search(r"bad\.toml: model\.heads = 5 does not divide model\.width = 64", listed.stderr)
    asked = gradtui("run", "bad", "--presets", presets)
    assert asked.returncode == 2
    assert "model.heads = 5" in asked.stderr
    assert gradtui("run", "tiny", "--presets", presets, "--steps", "1").returncode == 0


def test_presets_as_json_are_complete() -> None:
    done = gradtui("presets", "--json")
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    assert [preset["id"] for preset in listed][:7] == [
        "post-ln", "pre-ln", "post-rms", "pre-rms", "post-ln-warmup", "post-ln-deep", "pre-rms-100",
    ]  # fmt: skip
    assert listed[0]["model"]["topology"] == "post"
    assert listed[0]["training"]["lr"] == 1e-3


def test_an_existing_file_is_not_overwritten_by_run(presets: str, tmp_path: Path) -> None:
    out = tmp_path / "x.gradtui"
    out.write_text("precious")
    done = gradtui("run", "tiny", "--presets", presets, "--out", str(out))
    assert done.returncode == 1
    assert "already exists" in done.stderr
    assert out.read_text() == "precious"


def test_a_file_that_is_no_run_is_refused_by_watch(tmp_path: Path) -> None:
    path = tmp_path / "cat.gradtui"
    path.write_bytes(b"\xff\xd8 a cat")
    done = gradtui("watch", str(path))
    assert done.returncode == 1
    assert "is not a gradtui run file" in done.stderr


@pytest.mark.parametrize("command", [[], ["watch"]])
def test_without_a_terminal_the_screen_is_refused_in_one_sentence(command: list[str], make_run: RunMaker) -> None:
    files = [str(make_run())] if command else []
    for term in ("xterm-256color", "dumb"):
        done = gradtui(*command, *files, TERM=term)
        assert done.returncode == 1
        assert "needs a terminal" in done.stderr
        assert done.stderr.count("\n") == 1


def test_doctor_reports_versions_directories_and_presets(tmp_path: Path) -> None:
    done = gradtui("doctor")
    assert done.returncode == 0
    for part in ("textual", "torch", "device", "threads", "colours", "data directory", "(writable)", "presets"):
        assert part in done.stdout
    (tmp_path / "file").write_text("")
    blocked = gradtui("doctor", GRADTUI_DATA_DIR=str(tmp_path / "file" / "data"))
    assert blocked.returncode == 1
    assert "✗ data directory" in blocked.stdout
    assert "not writable" in blocked.stdout


def test_a_data_directory_that_cannot_be_written_is_said_and_replaced(presets: str, tmp_path: Path) -> None:
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
    )
    assert done.returncode == 0
    assert "cannot be written" in done.stderr
    run = Path(json.loads(done.stdout)["run"])
    assert run.exists()
    run.unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_trained_and_says_where(presets: str, tmp_path: Path, number: int) -> None:
    out = tmp_path / "x.gradtui"
    script = Path(sys.executable).with_name("gradtui")
    process = subprocess.Popen(
        [str(script), "run", "tiny", "--presets", presets, "--steps", "1000000", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not out.exists() or RunReader(out).last_step < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    try:
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()  # a million steps are too many to be left behind
    assert process.returncode == 128 + number
    assert str(out) in said
    assert "Traceback" not in said
    reader = RunReader(out)
    assert reader.status == "stopped"
    assert len(reader.losses()) == reader.last_step + 1


def test_help_names_every_command() -> None:
    done = gradtui("--help")
    for command in ("run", "watch", "presets", "doctor", "bench"):
        assert re.search(rf"^  {command}\s", done.stdout, re.MULTILINE)


def test_what_a_parent_told_to_ignore_stays_ignored(presets: str, tmp_path: Path) -> None:
    out = tmp_path / "x.gradtui"
    script = Path(sys.executable).with_name("gradtui")
    process = subprocess.Popen(
        [str(script), "run", "tiny", "--presets", presets, "--steps", "400", "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 60
    while not out.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert RunReader(out).last_step == 399


def test_output_that_cannot_show_a_character_is_no_reason_to_fail() -> None:
    done = gradtui("presets", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "post-ln" in done.stdout


def test_a_data_directory_of_nobody_is_one_sentence(presets: str) -> None:
    done = gradtui("runs", "rm", "anything", "--yes", GRADTUI_DATA_DIR="~nosuchuser/x")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
