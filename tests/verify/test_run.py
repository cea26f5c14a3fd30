"""Jobs are done in processes of their own: each failure is that job's alone, and no process stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gradtui.presets import Preset, load_preset
from gradtui.verify import VerifyError
from gradtui.verify.jobs import BenchmarkJob, InvariantJob, Job, TrainingJob
from gradtui.verify.run import run_jobs
from gradtui.verify.store import Store

ENDLESS = 1_000_000  # steps


@pytest.fixture
def tiny(own_presets: Path) -> Preset:
    return load_preset(own_presets / "tiny.toml")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def endless(preset: Preset, seed: int, store: Store) -> TrainingJob:
    return TrainingJob(preset, seed, ENDLESS, False, store.run(f"endless-{seed}"))


def is_free_of_processes() -> bool:
    return not multiprocessing.active_children()


def test_a_process_that_dies_costs_its_own_job_only(tiny: Preset, store: Store, tmp_path: Path) -> None:
    log, progress = tmp_path / "log", []

    def kill(more: int) -> None:
        progress.append(more)
        if len(progress) == 1:  # the first job trains
            for process in multiprocessing.active_children():
                process.kill()

    jobs: dict[str, Job] = {"a": endless(tiny, 0, store)}
    jobs |= {name: InvariantJob("lost_directions", tiny, 0) for name in ("b", "c")}
    failed = run_jobs(jobs, at_once=1, store=store, log=log, on_progress=kill)
    assert failed == {"a": f"the worker was ended by signal 9 (log: {log})"}
    assert (store.value("a"), store.value("b"), store.value("c")) == (None, 2.0, 2.0)
    assert sum(progress) == sum(job.weight for job in jobs.values())
    assert is_free_of_processes()


def test_a_job_that_fails_says_why_and_the_log_has_the_traceback(
    tiny: Preset, store: Store, tmp_path: Path
) -> None:
    jobs: dict[str, Job] = {
        "unknown": InvariantJob("luck", tiny, 0),
        "good": InvariantJob("lost_directions", tiny, 0),
    }
    failed = run_jobs(jobs, at_once=1, store=store, log=tmp_path / "log", on_progress=lambda _: None)
    assert failed == {"unknown": "AttributeError: module 'gradtui.verify.invariants' has no attribute 'luck'"}
    assert store.value("good") == 2.0
    assert "Traceback" in (tmp_path / "log").read_text()


def test_benchmarks_come_last(tiny: Preset, store: Store, tmp_path: Path) -> None:
    progress: list[int] = []
    jobs: dict[str, Job] = {
        "benchmark": BenchmarkJob("norm_bytes", "formula", "forward", 0),
        "invariant": InvariantJob("lost_directions", tiny, 0),
    }
    assert run_jobs(jobs, at_once=2, store=store, log=tmp_path / "log", on_progress=progress.append) == {}
    assert progress == [jobs["invariant"].weight, jobs["benchmark"].weight]
    assert {key for key in jobs if store.value(key) is not None} == set(jobs)


def test_nothing_stays_behind_when_the_caller_is_interrupted(tiny: Preset, store: Store, tmp_path: Path) -> None:
    """Two processes train; both are gone afterwards, and so are their half-made run files."""
    running: list[int] = []

    def interrupt(_more: int) -> None:
        running.append(len(multiprocessing.active_children()))
        raise KeyboardInterrupt

    jobs = {str(seed): endless(tiny, seed, store) for seed in range(3)}
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, at_once=2, store=store, log=tmp_path / "log", on_progress=interrupt)
    assert running == [2]
    assert is_free_of_processes()
    assert list(store.directory.iterdir()) == []


def test_a_log_that_cannot_be_written_is_a_sentence(tiny: Preset, store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    jobs = {"a": InvariantJob("lost_directions", tiny, 0)}
    with pytest.raises(VerifyError, match="the workers cannot be started"):
        run_jobs(jobs, at_once=1, store=store, log=tmp_path / "file" / "log", on_progress=lambda _: None)


@pytest.mark.skipif(os.name != "posix", reason="needs signals for a group of processes")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_command_that_is_interrupted_or_killed_leaves_nothing(
    number: signal.Signals, code: int, own_presets: Path, tmp_path: Path
) -> None:
    """As ctrl+c in a terminal does it: the signal goes to the whole group of processes."""
    path, results = own_presets / "claims" / "own-endless.toml", tmp_path / "data" / "verify"
    path.write_text(
        'lesson = "§2"\ntext = "It ends."\ntext_zh = "它会结束。"\nbound = "> 0"\n[measure]\nkind = "metric"\n'
        f'samples = [{{ preset = "tiny", quantity = "loss", stop = {ENDLESS} }}]\n'
    )
    command = [sys.executable, "-m", "gradtui", "verify", "own-endless", "--presets", str(own_presets)]
    process = subprocess.Popen(
        [*command, "--seeds", "2", "--jobs", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until(lambda: results.is_dir() and len([p for p in results.iterdir() if p.suffix == ".gradtui"]) == 2)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    until(lambda: list(results.iterdir()) == [])


def until(is_true: Callable[[], bool], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)
