"""Tables hold every value once, in long form, and name what is not finite."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.conftest import Opened

from gradtui.export import Choice
from gradtui.export.table import csv_lines, jsonl_lines
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Frame, Site
from gradtui.runs.writer import RunWriter


def rows_of_csv(run: RunReader, choice: Choice) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(csv_lines(run, choice)))))


def rows_of_jsonl(run: RunReader, choice: Choice) -> list[dict[str, Any]]:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    return [json.loads(line, parse_constant=refuse) for line in "".join(jsonl_lines(run, choice)).splitlines()]


def record(path: Path, names: list[str], steps: int = 1) -> Path:
    values = np.random.default_rng(0).lognormal(size=(1, len(names))).astype(np.float32)
    sites = [Site(name, None, "module") for name in names]
    with RunWriter(path, sites, {}, metrics=("grad_norm",)) as writer:
        for step in range(steps):
            writer.append(Frame(step, 0.0, 0.1, 3.0, 1e-3, values))
    return path


def test_a_csv_table_holds_every_value_once_and_names_what_is_not_finite(spoilt: Path, opened: Opened) -> None:
    run, choice = opened(spoilt)
    rows = rows_of_csv(run, choice)
    assert list(rows[0]) == ["step", "site", "layer", "kind", "stack", "metric", "value", "nonfinite"]
    losses = [(row["value"], row["nonfinite"]) for row in rows if row["metric"] == "loss"]
    assert losses == [("3.0", ""), ("", "nan"), ("", "inf")]
    for metric in SITE_METRICS:
        values = run.metric(metric)
        table = {(int(r["step"]), r["site"]): r for r in rows if r["metric"] == metric}
        absent = 1 if metric == "grad_norm" else 0
        assert len(table) == 3 * (len(run.sites) - absent)
        for (step, name), row in table.items():
            value = values[step, [site.name for site in run.sites].index(name)]
            if row["nonfinite"]:
                assert row["value"] == ""
                assert row["nonfinite"] == str(value)
            else:
                assert np.float32(row["value"]) == value
    assert {row["layer"] for row in rows if row["site"] == "layers.3.mixer"} == {"3"}
    assert {row["layer"] for row in rows if row["site"] == "head"} == {""}


def test_json_lines_are_read_by_a_strict_parser(spoilt: Path, opened: Opened) -> None:
    run, choice = opened(spoilt, "grad_norm", start=1, stop=2)
    rows = rows_of_jsonl(run, choice)
    value = run.metric("grad_norm")[1, 4]
    assert [(row["value"], row["nonfinite"]) for row in rows[:4]] == [
        (None, "nan"), (None, "inf"), (None, "-inf"), (pytest.approx(value), None),
    ]  # fmt: skip
    assert rows[0] == {
        "step": 1, "site": "layers.0.mixer", "layer": 0, "kind": "mixer", "stack": "", "metric": "grad_norm",
        "value": None, "nonfinite": "nan",
    }  # fmt: skip


def test_a_loss_alone_is_a_line_a_step_without_a_site(spoilt: Path, opened: Opened) -> None:
    rows = rows_of_jsonl(*opened(spoilt, "loss", stop=1))
    assert rows == [
        {"step": 0, "site": None, "layer": None, "kind": None, "stack": "", "metric": "loss", "value": 3.0,
         "nonfinite": None},
    ]  # fmt: skip


def test_names_with_commas_quotes_and_other_scripts_survive(tmp_path: Path, opened: Opened) -> None:
    names = ['a,"b"', "层.0", "line\nbreak"]
    run, choice = opened(record(tmp_path / "a.gradtui", names), "grad_norm")
    assert [row["site"] for row in rows_of_csv(run, choice)] == names
    assert [row["site"] for row in rows_of_jsonl(run, choice)] == names


def test_memory_does_not_grow_with_the_length_of_what_is_exported(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from gradtui.export import choose
from gradtui.export.table import jsonl_lines
from gradtui.runs.reader import RunReader
run = RunReader(Path(sys.argv[1]))
pieces = jsonl_lines(run, choose(run, ("grad_norm", "loss"), None, None))
sum(len(piece) for piece in pieces)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for steps in (2_000, 40_000):
        path = record(tmp_path / f"{steps}.gradtui", [f"m{i}" for i in range(40)], steps)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, env=os.environ
        )
        peaks.append(int(done.stdout))
    # Forty times forty thousand values are 200 MB as text; peaks are in kB (on macOS in bytes).
    unit = 1 if sys.platform != "darwin" else 1024
    assert peaks[1] - peaks[0] < 25_000 * unit
