"""`gradtui runs`, `gradtui runs rm` and `gradtui export`, as a user and their shell see them."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from conftest import RunMaker, make_sites

from gradtui.cli.export import export
from gradtui.cli.runs import runs
from gradtui.errors import Failure
from gradtui.export import figure
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Frame, Site
from gradtui.runs.writer import RunWriter

GRAD = SITE_METRICS.index("grad_norm")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where runs are recorded."""
    path = tmp_path / "data" / "runs"
    path.mkdir(parents=True)
    return path


def _record(
    path: Path,
    *,
    steps: int = 3,
    facts: dict[str, Any] | None = None,
    sites: Sequence[Site] = tuple(make_sites(2)),
    metrics: Sequence[str] = SITE_METRICS,
    keep: int | None = None,
    status: str | None = "done",
) -> RunWriter:
    writer = RunWriter(path, sites, facts or {}, metrics=metrics, keep=keep)
    for step in range(steps):
        values = np.full((len(metrics), len(sites)), 1 + step / 10, np.float32)
        writer.append(Frame(step, 0.0, 0.1, 3.0 - step / steps, 1e-3, values))
    writer.flush()
    if status is not None:
        writer.close(status)
    return writer


def _call(command: click.Command, *arguments: object, terminal: str | None = None) -> Result:
    runner = CliRunner()
    return runner.invoke(command, [str(argument) for argument in arguments], input=terminal)


def _refusal(command: click.Command, *arguments: object) -> tuple[str, int]:
    result = _call(command, *arguments)
    assert isinstance(result.exception, Failure), result.output
    return str(result.exception), result.exception.code


# --- runs


def test_runs_lists_what_is_recorded_newest_first_with_what_each_is(directory: Path) -> None:
    _record(directory / "old.gradtui", facts={"name": "post-ln", "seed": 3, "started": time.time() - 9000})
    script = {"source": "script", "name": "mine", "script": "train.py --epochs 3"}
    sites = [Site("fc", 0, "module"), Site("out", 1, "module")]
    _record(
        directory / "new.gradtui", steps=1200, facts=script, sites=sites, metrics=("grad_norm",), status="failed"
    )
    result = _call(runs)
    assert result.exit_code == 0
    head, new, old = result.output.splitlines()
    assert head.split() == ["NAME", "WHAT", "WHEN", "STEPS", "STATE", "SIZE", "VERDICT"]
    assert new.startswith("new")
    assert all(part in new for part in ("train.py --epochs 3", "1,200", "failed", "kB", "✓ 1×"))
    assert all(part in old for part in ("old", "post-ln s3", " 3 ", "done"))


def test_a_damaged_and_a_foreign_file_are_a_line_each_not_the_end_of_the_list(directory: Path) -> None:
    _record(directory / "good.gradtui")
    (directory / "foreign.gradtui").write_text("not a run")
    data = (directory / "good.gradtui").read_bytes()
    (directory / "cut.gradtui").write_bytes(data[: len(data) // 3])
    lines = _call(runs).output.splitlines()
    assert len(lines) == 4
    assert any(line.startswith("foreign") and "is not a gradtui run file" in line for line in lines)
    assert any(line.startswith("cut") and "damaged" in line for line in lines)
    listed = {run["name"]: run for run in json.loads(_call(runs, "--json").output)}
    assert listed["good"]["error"] is None
    assert "not a gradtui run file" in listed["foreign"]["error"]


def test_the_list_for_machines_is_strict_json_with_everything_in_it(directory: Path) -> None:
    def broken(text: str) -> None:
        raise AssertionError(text)

    sites = [Site("fc", 0, "module")]
    facts = {"source": "script", "name": "mine", "script": "train.py"}
    _record(directory / "a.gradtui", facts=facts, sites=sites, metrics=("grad_norm",), status=None)
    (run,) = json.loads(_call(runs, "--json").output, parse_constant=broken)
    assert run["file"] == str(directory / "a.gradtui")
    assert (run["source"], run["what"], run["steps"], run["state"]) == ("script", "train.py", 3, "running")
    assert run["size"] > 0
    assert run["verdict"] == {"state": "silent", "ratio": None, "spread": None, "since": None}


def test_another_directory_can_be_listed_and_an_empty_or_missing_one_says_so(
    directory: Path, tmp_path: Path
) -> None:
    _record(tmp_path / "elsewhere.gradtui")
    assert "elsewhere" in _call(runs, tmp_path).output
    assert f"there is no run file in {directory}" in _call(runs).output
    sentence, code = _refusal(runs, tmp_path / "nothing")
    assert sentence == f"{tmp_path / 'nothing'} is not a directory"
    assert code == 2


def test_a_name_that_would_move_the_cursor_is_shown_without_its_orders(directory: Path) -> None:
    _record(directory / "a.gradtui", facts={"source": "script", "script": "x\x1b[2J\n.py"})
    output = _call(runs).output
    assert "\x1b" not in output
    assert len(output.splitlines()) == 2


# --- rm


def test_rm_removes_a_run_by_name_with_all_that_belongs_to_it(directory: Path) -> None:
    log = directory / "mine.log"
    log.write_text("epoch 1")
    _record(directory / "mine.gradtui", facts={"source": "script", "output": str(log)})
    _record(directory / "other.gradtui")
    for suffix in ("-wal", "-shm"):
        (directory / f"mine.gradtui{suffix}").touch()
    result = _call(runs, "rm", "mine", "--yes")
    assert result.exit_code == 0
    assert sorted(path.name for path in directory.iterdir()) == ["other.gradtui"]
    assert "mine.gradtui" in result.output


def test_an_output_that_lies_elsewhere_or_belongs_to_another_run_too_is_left(
    directory: Path, tmp_path: Path
) -> None:
    elsewhere, shared = tmp_path / "mine.log", directory / "shared.log"
    elsewhere.touch()
    shared.touch()
    _record(directory / "a.gradtui", facts={"output": str(elsewhere)})
    _record(directory / "b.gradtui", facts={"output": str(shared)})
    _record(directory / "b-2.gradtui", facts={"output": str(shared)})
    _record(directory / "c.gradtui", facts={"output": str(directory / "b.gradtui")})
    assert _call(runs, "rm", "a", "b", "c", "-y").exit_code == 0
    assert elsewhere.exists()
    assert sorted(path.name for path in directory.iterdir()) == ["b-2.gradtui", "shared.log"]
    assert _call(runs, "rm", "b-2", "-y").exit_code == 0
    assert list(directory.iterdir()) == []


def test_the_beginning_of_a_name_is_enough_if_it_is_the_only_one(directory: Path) -> None:
    for name in ("post-ln-s0-1", "post-ln-s1-2", "pre-ln-s0-3"):
        _record(directory / f"{name}.gradtui")
    sentence, code = _refusal(runs, "rm", "post", "--yes")
    assert sentence == "'post' may mean post-ln-s0-1, post-ln-s1-2; say more of it"
    assert code == 2
    assert _call(runs, "rm", "pre", "--yes").exit_code == 0
    assert _call(runs, "rm", "post-*", "--yes").exit_code == 0
    assert list(directory.iterdir()) == []
    assert _refusal(runs, "rm", "post", "--yes")[0].startswith("there is no run 'post': neither a file, nor")


def test_a_run_that_goes_on_and_a_file_that_cannot_be_read_are_removed_only_by_force(directory: Path) -> None:
    writer = _record(directory / "live.gradtui", status=None)
    (directory / "odd.gradtui").write_text("odd")
    assert "live is running; --force" in _refusal(runs, "rm", "live", "--yes")[0]
    assert "not a gradtui run file" in _refusal(runs, "rm", "odd", "--yes")[0]
    assert len(list(directory.glob("*.gradtui"))) == 2
    assert _call(runs, "rm", "live", "odd", "--yes", "--force").exit_code == 0
    assert list(directory.glob("*.gradtui")) == []
    writer.close()


def test_only_run_files_are_removed_by_path(directory: Path, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.tex"
    precious.touch()
    assert "does not end in .gradtui" in _refusal(runs, "rm", precious, "--yes", "--force")[0]
    assert precious.exists()


def test_without_a_terminal_rm_needs_yes_and_nothing_to_remove_needs_a_choice(directory: Path) -> None:
    _record(directory / "a.gradtui")
    assert _refusal(runs, "rm", "a") == ("there is no terminal to ask on; --yes removes 1 run", 2)
    assert _refusal(runs, "rm", "--yes")[1] == 2
    assert (directory / "a.gradtui").exists()


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)])
def test_on_a_terminal_rm_asks(directory: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    _record(directory / "a.gradtui")

    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    result = _call(runs, "rm", "a", terminal=answer)
    assert "Remove 1 run" in result.output
    assert len(list(directory.glob("*.gradtui"))) == left


def test_old_runs_and_those_that_ended_badly_can_be_chosen(directory: Path) -> None:
    day = 86400
    for name, age, status in (("a", 40, "done"), ("b", 40, "failed"), ("c", 1, "failed"), ("d", 0, "done")):
        _record(directory / f"{name}.gradtui", facts={"started": time.time() - age * day}, status=status)
    assert _call(runs, "rm", "--older-than", "30d", "--ended", "failed", "--yes").exit_code == 0
    assert [path.stem for path in sorted(directory.glob("*.gradtui"))] == ["a", "c", "d"]
    assert _call(runs, "rm", "--older-than", "30d", "--yes").exit_code == 0
    assert [path.stem for path in sorted(directory.glob("*.gradtui"))] == ["c", "d"]
    assert "30d" in _refusal(runs, "rm", "--older-than", "month", "--yes")[0]


# --- export


def _rows(path: Path, *arguments: str) -> list[dict[str, str]]:
    result = _call(export, path, "--format", "csv", *arguments)
    assert result.exception is None, result.exception
    return list(csv.DictReader(io.StringIO(result.stdout)))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [("1:3", [1, 2]), (":2", [0, 1]), ("3:", [3, 4]), (":", [0, 1, 2, 3, 4]), ("2:99", [2, 3, 4])],
)
def test_a_range_of_steps_is_half_open(make_run: RunMaker, steps: str, expected: list[int]) -> None:
    path = make_run(ratios=[1.0] * 5)
    assert [int(row["step"]) for row in _rows(path, "--metric", "loss", "--steps", steps)] == expected


@pytest.mark.parametrize("steps", ["-3:", ":-1", "5", "3:3", "4:2", "a:b", "1:2:3", "1.5:2", ""])
def test_a_range_that_makes_no_sense_says_what_is_allowed(make_run: RunMaker, steps: str) -> None:
    sentence, code = _refusal(export, make_run(), "--format", "csv", f"--steps={steps}")
    assert "must be A:B with 0 ≤ A < B" in sentence
    assert code == 2


def test_what_cannot_be_exported_says_what_there_is(make_run: RunMaker, directory: Path, tmp_path: Path) -> None:
    path = make_run()
    assert (
        "has no metric 'grad'; it has: stream_grad, grad_norm"
        in _refusal(export, path, "--format", "csv", "--metric", "grad")[0]
    )
    assert "its steps are 0 to 2" in _refusal(export, path, "--format", "csv", "--steps", "7:9")[0]
    assert "there is no run 'x'" in _refusal(export, "x", "--format", "csv")[0]
    RunWriter(tmp_path / "empty.gradtui", make_sites(1), {}).close("done")
    assert "no recorded step yet" in _refusal(export, tmp_path / "empty.gradtui", "--format", "csv")[0]


def test_a_table_goes_to_a_file_and_never_over_another_unless_forced(make_run: RunMaker, tmp_path: Path) -> None:
    path, target = make_run(), tmp_path / "table.csv"
    arguments = (export, path, "--format", "csv", "--out", target)
    assert (
        _call(*arguments).stderr
        == f"gradtui: wrote {', '.join((*SITE_METRICS, 'loss'))}, steps 0 to 2, to {target}\n"
    )
    first = target.read_text()
    target.write_text("mine")
    assert _refusal(*arguments) == (f"{target} already exists; --force overwrites it", 2)
    assert target.read_text() == "mine"
    assert _call(*arguments, "--force").exception is None
    assert target.read_text() == first
    assert "is the run itself" in _refusal(export, path, "--format", "csv", "--out", path, "--force")[0]
    assert "is not there" in _refusal(export, path, "--format", "csv", "--out", tmp_path / "no" / "a.csv")[0]
    assert not list(tmp_path.glob(".*.new"))


def test_a_failed_export_leaves_the_file_that_was_there(
    make_run: RunMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradtui.export.arrays.write_npz", fail)
    target = tmp_path / "a.npz"
    target.write_text("mine")
    sentence, code = _refusal(export, make_run(), "--format", "npz", "--out", target, "--force")
    assert sentence == f"{target} cannot be written: No space left on device"
    assert code == 1
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob(".*.new"))


def test_a_bounded_run_says_which_steps_are_not_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    _record(path, steps=600, sites=make_sites(1), keep=32)
    result = _call(export, path, "--format", "csv", "--metric", "loss")
    start, stop = RunReader(path).thinned or (0, 0)
    assert f"steps {start} to {stop - 1} are left out: only a summary of them was kept" in result.stderr
    steps = [int(line.split(",")[0]) for line in result.stdout.splitlines()[1:]]
    assert steps == [step for step in range(600) if not start <= step < stop]
    sentence, _ = _refusal(export, path, "--format", "csv", "--steps", f"{start}:{stop}")
    assert "has kept only a summary of the steps in that range" in sentence


def test_without_matplotlib_a_figure_says_what_to_install(
    make_run: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = make_run()
    assert _refusal(export, path, "--format", "svg") == (figure.MISSING, 1)
    assert "pip install 'gradtui[export]'" in figure.MISSING
    assert not path.with_suffix(".svg").exists()
