"""A writer inside a training: locks, signals and forks cost it little and lose little."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import make_frame, make_sites

from gradtui.runs import RunError, creation, writer
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Event, Frame, Site
from gradtui.runs.writer import RunWriter

SITES = make_sites(2)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the file: no commit succeeds, as on a full disk."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_what_waits_for_a_file_is_bounded_and_the_file_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_WAITING", 300)
    now = [0.0]
    path = tmp_path / "a.gradtui"
    run = RunWriter(path, SITES, {}, lock_seconds=0, clock=lambda: now[0])
    run.append(make_frame(SITES, 0))
    with locked(path):
        for step in range(1, 2001):
            now[0] += 0.01
            with contextlib.suppress(RunError):
                run.append(make_frame(SITES, step))
    run.close("done")
    with contextlib.closing(RunReader(path)) as reader:
        kept = reader.steps()
        assert kept[-1] == 2000
        assert len(kept) <= 1 + 300 + writer.BATCH
        (note,) = [event for event in reader.events() if event.kind == "note"]
        missing = sorted(set(range(2001)) - set(kept.tolist()))
        assert missing
        assert note.text.startswith(f"steps {missing[0]} to {missing[-1]}: {len(missing)} frames are missing")
        assert "locked" in note.text
        assert reader.recorded == len(kept)
        window = reader.window("grad_norm", 0, 2001, 1)
        assert window.steps[-1] <= 2000


def test_attempts_to_write_become_rarer_while_they_fail_and_frequent_again_after(tmp_path: Path) -> None:
    now, attempts = [0.0], 0
    path = tmp_path / "a.gradtui"
    run = RunWriter(path, SITES, {}, lock_seconds=0, clock=lambda: now[0])
    with locked(path):
        for step in range(2400):  # a minute
            now[0] += 0.025
            try:
                run.append(make_frame(SITES, step))
            except RunError:
                attempts += 1
    assert 3 <= attempts <= 15
    run.flush()
    with contextlib.closing(RunReader(path)) as reader:
        now[0] += 0.3
        run.append(make_frame(SITES, 2400))
        reader.refresh()
        assert reader.last_step == 2400
    run.close("done")


def test_a_locked_file_keeps_the_caller_waiting_for_no_longer_than_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    run = RunWriter(path, SITES, {}, lock_seconds=0.05)
    with locked(path), pytest.raises(RunError, match="locked"):
        run.append(make_frame(SITES, 0))
        run.flush()
    run.close("done")
    assert RunReader(path).last_step == 0


def test_an_interruption_in_the_middle_of_a_commit_does_not_spoil_the_next(tmp_path: Path) -> None:
    class Interrupting:
        """Its text is asked for when facts are written; the first time ctrl+c is pressed."""

        asked = 0

        def __str__(self) -> str:
            self.asked += 1
            if self.asked == 1:
                raise KeyboardInterrupt
            return "text"

    path = tmp_path / "a.gradtui"
    run = RunWriter(path, SITES, {})
    run.append(make_frame(SITES, 0))
    with pytest.raises(KeyboardInterrupt):
        run.set_facts(script=Interrupting())
    run.append(make_frame(SITES, 1))
    run.close("done")
    with contextlib.closing(RunReader(path)) as reader:
        assert reader.steps().tolist() == [0, 1]
        assert reader.facts["script"] == "text"


def test_a_step_out_of_order_or_with_too_few_values_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    with RunWriter(path, SITES, {}) as run:
        run.append(make_frame(SITES, 5))
        with pytest.raises(RunError, match="step 5 cannot follow step 5"):
            run.append(make_frame(SITES, 5))
        with pytest.raises(RunError, match="step 6 has"):
            run.append(make_frame(SITES[:-1], 6))
        run.append(make_frame(SITES, 6))
    assert RunReader(path).steps().tolist() == [5, 6]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
from conftest import make_frame, make_sites
from gradtui.runs.writer import RunWriter
run = RunWriter(Path({str(path)!r}), make_sites(2), {{}})
run.append(make_frame(make_sites(2), 0))
if os.fork() == 0:
    run.append(make_frame(make_sites(2), 1))
    run.close("failed", "child")
    os._exit(0)
os.wait()
run.append(make_frame(make_sites(2), 1))
run.close("done")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    reader = RunReader(path)
    assert (reader.status, reader.last_step) == ("done", 1)


def test_facts_that_json_does_not_know_are_written_as_text(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "a.gradtui", SITES, {"script": Path("/tmp/train.py")}):
        pass
    assert RunReader(tmp_path / "a.gradtui").facts["script"] == "/tmp/train.py"


def test_the_log_of_an_earlier_file_of_the_same_name_is_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    earlier = RunWriter(path, make_sites(9), {})
    for step in range(50):
        earlier.append(make_frame(make_sites(9), step))
    earlier.flush()
    path.unlink()  # alone: its log stays, as after a crash
    with RunWriter(path, SITES, {}) as run:
        run.append(make_frame(SITES, 0))
    assert RunReader(path).last_step == 0


def test_drafts_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead, alive = tmp_path / f".x.gradtui.{process.pid}.new", tmp_path / f".y.gradtui.{os.getpid()}.new"
    mine = tmp_path / ".notes.new"
    for path in (dead, alive, mine):
        path.touch()
        os.utime(path, (0, 0))
    RunWriter(tmp_path / "a.gradtui", SITES, {}).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, mine.name, "a.gradtui"])


def test_a_failed_creation_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "TABLES", "CREATE TABLE broken (")
    with pytest.raises(RunError, match="cannot be written"):
        RunWriter(tmp_path / "a.gradtui", SITES, {})
    assert list(tmp_path.iterdir()) == []


def test_frames_that_come_faster_than_commits_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    sites = [Site("a", None, "module")]
    with RunWriter(path, sites, {}, metrics=("grad_norm",), clock=lambda: 0.0) as run:
        run.event(Event(0, "note", text="begin"))
        for step in range(10_000):
            run.append(Frame(step, 0.0, 0.0, None, None, np.ones((1, 1), np.float32)))
    reader = RunReader(path)
    assert len(reader.steps()) == reader.recorded == 10_000
    assert len(reader.events()) == 1
