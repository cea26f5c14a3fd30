"""Every benchmark runs at its smallest size, through the command, and prints figures against a baseline."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gradtui.bench import BENCHES, Result, Size, load, summarise
from gradtui.bench.made_up import preset_sites, script_sites, write_run
from gradtui.cli.main import cli
from gradtui.errors import USAGE, Failure
from gradtui.runs.open_run import open_run

IN_A_TERMINAL = {"start", "keys", "beside", "soak"}
TAKE_LONG = {"beside", "soak"}


def bench(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["bench", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", sorted(BENCHES.keys() - IN_A_TERMINAL))
def test_a_benchmark_runs_at_its_smallest_size(name: str) -> None:
    is_measured(json.loads(bench(name, "--quick", "--json")))


@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to see processes")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in TAKE_LONG)) for n in sorted(IN_A_TERMINAL)]
)
def test_a_benchmark_of_the_app_in_a_terminal_runs_at_its_smallest_size(name: str) -> None:
    is_measured(json.loads(bench(name, "--quick", "--json")))


def is_measured(results: list[dict[str, object]]) -> None:
    """Each figure is a positive number, between its percentiles, of something and against something."""
    assert results
    for result in results:
        low, median, high = (float(str(result[key])) for key in ("low", "median", "high"))
        assert math.isfinite(high)
        assert 0 < low <= median <= high
        assert result["name"]
        assert result["baseline"]
        assert result["budget"]


def test_a_line_has_the_figure_its_spread_the_budget_and_the_baseline() -> None:
    [line] = bench("redraw", "--quick").splitlines()
    assert re.fullmatch(r"redraw: .* ms +\[[\d.]+–[\d.]+\] +budget ≤ 40 +against an absolute time", line)


def test_an_unknown_name_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(Failure, match=r"no benchmark 'prob'.*probe") as failure:
        CliRunner().invoke(cli, ["bench", "prob"], catch_exceptions=False)
    assert failure.value.code == USAGE


@pytest.mark.parametrize("name", BENCHES)
def test_every_name_leads_to_a_function(name: str) -> None:
    assert load(name).__doc__


def test_a_summary_is_the_median_between_the_10th_and_the_90th_percentile() -> None:
    values = [float(value) for value in range(11)]
    assert summarise("a", "b", values, "none") == Result("a", "b", 5.0, 1.0, 9.0, "none")


def test_a_size_repeats_what_is_usual_or_does_the_least() -> None:
    assert Size(repeat=3).count(10) == 30
    assert Size(repeat=3, quick=True).count(10) == 1
    assert Size(quick=True).count(10, least=2) == 2


def test_a_made_up_run_is_a_run_file_of_so_many_steps_and_sites(tmp_path: Path) -> None:
    assert write_run(tmp_path / "a.gradtui", preset_sites(3), 5) > 0
    with open_run(tmp_path / "a.gradtui") as run:
        assert (len(run.steps), len(run.sites), run.status) == (5, 7, "done")
    write_run(tmp_path / "b.gradtui", script_sites(3), 2, metrics=["grad_norm"])
    with open_run(tmp_path / "b.gradtui") as run:
        assert (run.metric("grad_norm").shape, len(run.sites)) == ((2, 6), 6)
