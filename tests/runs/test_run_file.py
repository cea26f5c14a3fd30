"""A run file: what is written is what is read, whatever happens in between."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import RunMaker, make_frame, make_sites
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtui.metrics import SITE_METRICS
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, SCHEMA_VERSION, Event
from gradtui.runs.writer import RunWriter, mark_ended

GRAD = SITE_METRICS.index("grad_norm")


def test_every_frame_comes_back_bit_for_bit(tmp_path: Path) -> None:
    sites = make_sites(3)
    random = np.random.default_rng(0)
    frames = [make_frame(sites, step) for step in range(40)]
    for frame in frames:
        frame.values[:] = random.lognormal(size=frame.values.shape)
    path = tmp_path / "a.gradtui"
    with RunWriter(path, sites, {"seed": 7}) as writer:
        for frame in frames:
            writer.append(frame)
    reader = RunReader(path)
    assert reader.facts["seed"] == 7
    assert reader.status == "done"
    assert list(reader.sites) == sites
    assert reader.stream_sites == (0, 2, 4, 6)
    assert (reader.first_step, reader.last_step) == (0, 39)
    for frame in frames:
        snapshot = reader.frame(frame.step)
        assert snapshot is not None
        assert snapshot.frame.loss == frame.loss
        np.testing.assert_array_equal(snapshot.values, frame.values)
    np.testing.assert_array_equal(reader.metric("grad_norm"), [frame.values[GRAD] for frame in frames])


def test_nan_inf_and_absent_values_are_told_apart(tmp_path: Path) -> None:
    sites = make_sites(1)
    frame = make_frame(sites, 0, loss=float("nan"))
    frame.values[GRAD, :3] = [np.nan, np.inf, ABSENT]
    path = tmp_path / "a.gradtui"
    with RunWriter(path, sites, {}) as writer:
        writer.append(frame)
        writer.append(make_frame(sites, 1, loss=float("inf")))
    reader = RunReader(path)
    snapshot = reader.frame(0)
    assert snapshot is not None
    assert snapshot.frame.loss is not None
    assert np.isnan(snapshot.frame.loss)
    assert np.isnan(snapshot.values[GRAD, 0])
    assert np.isposinf(snapshot.values[GRAD, 1])
    assert np.isnan(snapshot.values[GRAD, 2])
    assert snapshot.nonfinite[GRAD].tolist() == [True, True, False, False, False]
    window = reader.window("grad_norm", 0, 1, 10)
    assert window.nonfinite[0].tolist() == [True, True, False, False, False]
    assert np.isnan(window.mean[0, 2])
    losses = reader.loss_window(0, 2, 10)
    assert losses.nonfinite.tolist() == [True, True]
    assert RunReader(path).frame(1).frame.loss == np.inf  # type: ignore[union-attr]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.integers(1, 700), poison=st.lists(st.integers(0, 699), max_size=3), chunk=st.integers(1, 90))
def test_a_coarse_window_has_the_extrema_and_the_mean_of_its_steps(
    tmp_path: Path, steps: int, poison: list[int], chunk: int
) -> None:
    sites = make_sites(1)
    random = np.random.default_rng(steps)
    path = tmp_path / f"{time.monotonic_ns()}.gradtui"
    clock = iter(range(10**6))
    values = random.lognormal(size=(steps, len(sites))).astype(np.float32)
    for step in poison:
        if step < steps:
            values[step, 1] = np.nan
    # The clock makes the writer commit every `chunk` frames, wherever that falls in a bucket.
    with RunWriter(path, sites, {}, clock=lambda: next(clock) * 0.25 / chunk) as writer:
        for step in range(steps):
            frame = make_frame(sites, step, loss=float(values[step, 0]))
            frame.values[GRAD] = values[step]
            writer.append(frame)
    reader = RunReader(path)
    for columns in (1, 3, 10**6):
        window = reader.window("grad_norm", 0, steps, columns)
        edges = [*window.steps.tolist(), steps]
        for row, (start, stop) in enumerate(pairwise(edges)):
            part = values[start:stop].astype(np.float64)
            finite = np.where(np.isfinite(part), part, np.nan)
            there = np.isfinite(part).any(axis=0)
            np.testing.assert_array_equal(window.nonfinite[row], ~np.isfinite(part).all(axis=0))
            np.testing.assert_allclose(window.low[row, there], np.nanmin(finite[:, there], axis=0))
            np.testing.assert_allclose(window.high[row, there], np.nanmax(finite[:, there], axis=0))
            np.testing.assert_allclose(window.mean[row, there], np.nanmean(finite[:, there], axis=0), rtol=1e-5)
            assert np.isnan(window.mean[row, ~there]).all()


def test_a_window_reads_about_as_many_rows_for_a_long_run_as_for_a_short_one(tmp_path: Path) -> None:
    sites = make_sites(1)
    rows = {}
    for steps in (1_000, 40_000):
        with RunWriter(tmp_path / f"{steps}.gradtui", sites, {}) as writer:
            for step in range(steps):
                writer.append(make_frame(sites, step))
        rows[steps] = len(RunReader(tmp_path / f"{steps}.gradtui").window("grad_norm", 0, steps, 50).steps)
    assert 50 <= rows[1_000] <= 1_000
    assert 50 <= rows[40_000] <= 16 * 50


def test_a_reader_follows_a_live_run(tmp_path: Path) -> None:
    sites = make_sites(2)
    path = tmp_path / "live.gradtui"
    writer = RunWriter(path, sites, {})
    reader = RunReader(path)
    assert reader.last_step == -1
    writer.append(make_frame(sites, 0))
    writer.event(Event(0, "note", 1, 2.0, "hello"))
    writer.flush()
    assert reader.refresh()
    assert reader.last_step == 0
    assert reader.events() == [Event(0, "note", 1, 2.0, "hello")]
    assert not reader.refresh()
    writer.set_facts(status="paused")
    assert reader.refresh()
    assert reader.status == "paused"
    writer.close("done")
    reader.refresh()
    assert reader.status == "done"


def test_frames_wait_at_most_a_quarter_of_a_second(tmp_path: Path) -> None:
    now = [0.0]
    sites = make_sites(1)
    path = tmp_path / "a.gradtui"
    writer = RunWriter(path, sites, {}, clock=lambda: now[0])
    reader = RunReader(path)
    for step, at in enumerate((0.3, 0.4, 0.5, 0.56)):
        now[0] = at
        writer.append(make_frame(sites, step))
        reader.refresh()
        assert reader.last_step == {0.3: 0, 0.4: 0, 0.5: 0, 0.56: 3}[at]
    writer.close()


def test_a_killed_writer_loses_at_most_its_last_commit_and_is_reported_dead(tmp_path: Path) -> None:
    path = tmp_path / "killed.gradtui"
    script = textwrap.dedent(
        f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
        from conftest import make_frame, make_sites
        from gradtui.runs.writer import RunWriter
        from pathlib import Path
        sites = make_sites(2)
        writer = RunWriter(Path({str(path)!r}), sites, {{}})
        for step in range(10**6):
            writer.append(make_frame(sites, step))
            print(step, flush=True)
            time.sleep(0.01)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = -1
    while said < 60:
        said = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    reached = int(rest[-1]) if rest else said
    reader = RunReader(path)
    assert reader.status == "died"
    # 0.25 s between commits, at 0.01 s a step or slower.
    assert reached - 40 <= reader.last_step <= reached
    assert [reader.frame(step) is not None for step in range(reader.last_step + 1)] == [True] * (
        reader.last_step + 1
    )
    mark_ended(path, "died", "killed by signal 9")
    reader.refresh()
    assert reader.facts["reason"] == "killed by signal 9"


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_a_file_that_cannot_grow_loses_nothing_once_there_is_room_again(tmp_path: Path) -> None:
    import resource

    sites = make_sites(2)
    path = tmp_path / "full.gradtui"
    writer = RunWriter(path, sites, {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + (256 << 10), limits[1]))
        with pytest.raises(RunError, match="cannot be written"):
            for step in range(20_000):
                written = step
                writer.append(make_frame(sites, step))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.append(make_frame(sites, written + 1))
    writer.close("done")
    reader = RunReader(path)
    assert len(reader.losses()) == written + 2
    assert len(reader.window("grad_norm", 0, written + 2, 1).steps) >= 1


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "precious.gradtui"
    path.write_text("precious")
    with pytest.raises(RunError, match=r"precious\.gradtui already exists"):
        RunWriter(path, make_sites(1), {})
    assert path.read_text() == "precious"


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created"):
        RunWriter(tmp_path / "file" / "a.gradtui", make_sites(1), {})


def _foreign(path: Path) -> None:
    path.write_bytes(b"hello, I am a picture" * 100)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE people (name TEXT)")


def _newer(path: Path) -> None:
    RunWriter(path, make_sites(1), {}).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def _truncated(path: Path) -> None:
    with RunWriter(path, make_sites(8), {}) as writer:
        for step in range(200):
            writer.append(make_frame(make_sites(8), step))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_foreign, "is not a gradtui run file"),
        (_empty, "is not a gradtui run file"),
        (_other_database, "is an SQLite file, but not a gradtui run file"),
        (_newer, "was written by a newer gradtui"),
    ],
)
def test_a_file_that_is_no_run_file_is_refused_in_one_sentence(tmp_path: Path, spoil, sentence: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.gradtui"
    spoil(path)
    with pytest.raises(RunError, match=sentence) as caught:
        RunReader(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_never_raises_anything_but_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.gradtui"
    _truncated(path)
    with pytest.raises(RunError, match=r"x\.gradtui (is damaged|cannot be read)"):
        reader = RunReader(path)
        reader.metric("grad_norm")
        reader.window("grad_norm", 0, 200, 10)


def test_a_finished_run_can_be_read_from_a_read_only_directory(make_run: RunMaker) -> None:
    path = make_run("kept")
    path.parent.chmod(0o555)
    path.chmod(0o444)
    try:
        assert RunReader(path).last_step == 2
    finally:
        path.parent.chmod(0o755)


def test_no_log_files_are_left_beside_a_finished_run(make_run: RunMaker) -> None:
    path = make_run("tidy")
    reader = RunReader(path)
    reader.close()
    assert [p.name for p in path.parent.glob("tidy*")] == ["tidy.gradtui"]


def test_of_two_writers_of_one_name_the_second_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gradtui"
    first = RunWriter(path, make_sites(1), {})
    first.append(make_frame(make_sites(1), 0))
    # The second has looked before the first had made the file.
    monkeypatch.setattr(Path, "exists", lambda self: False)
    with pytest.raises(RunError):
        RunWriter(path, make_sites(1), {})
    first.close("done")
    reader = RunReader(path)
    assert reader.last_step == 0
    reader.close()
    assert [p.name for p in tmp_path.iterdir()] == ["x.gradtui"]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM facts WHERE key = 'metrics'", "does not say what it has measured"),
        ("UPDATE facts SET value = '{' WHERE key = 'seed'", "are not JSON"),
        ("UPDATE facts SET value = '[]' WHERE key = 'metrics'", "no metrics"),
        ("DELETE FROM sites", "no measured sites"),
        ("UPDATE frames SET data = x'00'", "bytes of values"),
    ],
)
def test_a_run_file_with_odd_contents_is_one_sentence(make_run: RunMaker, statement: str, sentence: str) -> None:
    path = make_run("odd")
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()

    def read() -> None:
        RunReader(path).frame(0)

    with pytest.raises(RunError, match=sentence):
        read()
