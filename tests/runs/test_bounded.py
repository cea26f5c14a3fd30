"""A bounded run file: what is gone is gone, and every window still tells the truth about what was recorded."""

from __future__ import annotations

import contextlib
import time
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtui.runs import RunError, thinning
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Frame, Site
from gradtui.runs.writer import RunWriter

SITES = [Site("a", 0, "module"), Site("b", 1, "module")]


@pytest.fixture(autouse=True)
def _short_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few thousand steps fill them."""
    monkeypatch.setattr(thinning, "HEAD_ROWS", 16)
    monkeypatch.setattr(thinning, "LEVEL_ROWS", 32)


def _steps(frames: int, every: int) -> np.ndarray:
    """At every step, or irregularly: now at each, now at every k-th, as where steps were skipped."""
    if every == 1:
        return np.arange(frames)
    random = np.random.default_rng(every)
    strides = np.repeat(random.choice([1, every], size=frames // 40 + 1), 40)[:frames]
    return np.cumsum(strides) - strides[0]


def _write(
    path: Path, values: np.ndarray, *, every: int = 1, keep: int | None = None, chunk: int = 50
) -> np.ndarray:
    ticks, steps = count(), _steps(len(values), every)
    with RunWriter(
        path, SITES, {}, metrics=("grad_norm",), keep=keep, clock=lambda: next(ticks) * 0.25 / chunk
    ) as writer:
        for step, numbers in zip(steps.tolist(), values, strict=True):
            loss = float(numbers[0]) if numbers[0] != ABSENT else None
            writer.append(Frame(step, 0.0, 0.01, loss, 1e-3, numbers[None]))
    return steps


def _values(frames: int, poison: list[int], absent: list[int]) -> np.ndarray:
    values = np.random.default_rng(frames).lognormal(size=(frames, 2)).astype(np.float32)
    values[[row for row in absent if row < frames], 1] = ABSENT
    values[[row for row in poison if row < frames], 0] = np.nan
    return values


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.integers(1, 5000),
    every=st.sampled_from([1, 1, 3, 16, 50]),
    keep=st.sampled_from([1, 7, 40, 300, None]),
    chunk=st.integers(1, 200),
    poison=st.lists(st.integers(0, 4999), max_size=4),
    absent=st.lists(st.integers(0, 4999), max_size=4),
    window=st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(1, 60)),
)
def test_every_window_of_a_bounded_run_holds_the_extrema_and_means_of_what_was_recorded(
    tmp_path: Path,
    frames: int,
    every: int,
    keep: int | None,
    chunk: int,
    poison: list[int],
    absent: list[int],
    window: tuple[float, float, int],
) -> None:
    values = _values(frames, poison, absent)
    path = tmp_path / f"{time.monotonic_ns()}.gradtui"
    steps = _write(path, values, every=every, keep=keep, chunk=chunk)
    end = int(steps[-1]) + 1
    start, stop = sorted((int(window[0] * end), int(window[1] * end)))
    with contextlib.closing(RunReader(path)) as reader:
        assert reader.recorded == frames
        assert (reader.first_step, reader.last_step) == (0, steps[-1])
        ranges = ((0, end, 1), (0, end, window[2]), (start, stop, window[2]), (0, 10 * end, 5))
        for begin, until, columns in ranges:
            found = reader.window("grad_norm", begin, until, columns)
            losses = reader.loss_window(begin, until, columns)
            np.testing.assert_array_equal(found.steps, losses.steps)
            asked = (steps >= begin) & (steps < until)
            if asked.any():
                assert found.steps[0] <= steps[asked][0]
                assert len(found.steps) >= (1 if keep or every > 1 else min(asked.sum(), columns))
            # A last row may reach beyond the end of the window, never beyond the run.
            edges = [*found.steps.tolist(), end]
            rows = len(found.steps) if until >= end else len(found.steps) - 1
            for row, (left, right) in enumerate(list(pairwise(edges))[: max(rows, 0)]):
                part = values[(steps >= left) & (steps < right)].astype(np.float64)
                known = np.where(np.isfinite(part) & (part != ABSENT), part, np.nan)
                there = ~np.isnan(known).all(axis=0)
                np.testing.assert_array_equal(found.nonfinite[row], ~np.isfinite(part).all(axis=0))
                np.testing.assert_allclose(found.low[row, there], np.nanmin(known[:, there], axis=0))
                np.testing.assert_allclose(found.high[row, there], np.nanmax(known[:, there], axis=0))
                np.testing.assert_allclose(found.mean[row, there], np.nanmean(known[:, there], axis=0), rtol=1e-5)
                assert np.isnan(found.mean[row, ~there]).all()
                if there[0]:
                    np.testing.assert_allclose(losses.mean[row], np.nanmean(known[:, 0]), rtol=1e-5)
                assert losses.nonfinite[row] == (~np.isfinite(part[:, 0])).any()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.integers(1, 3000), every=st.sampled_from([1, 7]), keep=st.integers(1, 200))
def test_single_steps_are_the_first_and_the_newest_and_are_what_was_recorded(
    tmp_path: Path, frames: int, every: int, keep: int
) -> None:
    values = _values(frames, [], [])
    path = tmp_path / f"{time.monotonic_ns()}.gradtui"
    steps = _write(path, values, every=every, keep=keep)
    with contextlib.closing(RunReader(path)) as reader:
        kept = reader.steps()
        rows = np.searchsorted(steps, kept)
        np.testing.assert_array_equal(reader.metric("grad_norm"), values[rows])
        np.testing.assert_allclose(reader.losses(), values[rows, 0])
        np.testing.assert_array_equal(rows[: min(16, frames)], np.arange(min(16, frames)))
        newest = min(keep, frames)
        np.testing.assert_array_equal(rows[-newest:], np.arange(frames - newest, frames))
        gone = np.setdiff1d(steps, kept)
        if reader.thinned is None:
            assert gone.size == 0
        else:
            first, stop = reader.thinned
            np.testing.assert_array_equal(gone, steps[(steps >= first) & (steps < stop)])
            step = int(gone[gone.size // 2])
            assert reader.frame(step) is None
            assert reader.nearest_step(step) == kept[kept < step][-1]


def test_a_bounded_file_stops_growing(tmp_path: Path) -> None:
    sizes = []
    for frames in (6_000, 12_000, 24_000):
        path = tmp_path / f"{frames}.gradtui"
        _write(path, _values(frames, [], []), keep=64)
        sizes.append(path.stat().st_size)
    assert sizes[2] <= sizes[1] * 1.1
    full = tmp_path / "full.gradtui"
    _write(full, _values(24_000, [], []))
    assert sizes[2] < full.stat().st_size / 8


def test_a_reader_follows_a_bounded_run_while_it_loses_steps(tmp_path: Path) -> None:
    path = tmp_path / "live.gradtui"
    writer = RunWriter(path, SITES, {}, metrics=("grad_norm",), keep=20)
    reader = RunReader(path)
    for step in range(600):
        writer.append(Frame(step, 0.0, 0.01, 1.0, None, np.full((1, 2), step, np.float32)))
        if step % 100 == 99:
            writer.flush()
            reader.refresh()
            assert reader.last_step == step
            assert reader.recorded == step + 1
            window = reader.window("grad_norm", 0, step + 1, 10**6)
            assert window.steps[0] == 0
            assert window.high[-1, 0] == step
            assert window.steps.tolist() == sorted(set(window.steps.tolist()))
    assert reader.thinned is not None
    writer.close()


def test_nothing_to_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="0 frames cannot be kept"):
        RunWriter(tmp_path / "a.gradtui", SITES, {}, keep=0)
    assert list(tmp_path.iterdir()) == []


def test_a_run_measured_every_tenth_step_is_drawn_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gradtui"
    with RunWriter(path, SITES, {}, metrics=("grad_norm",)) as writer:
        for step in range(0, 20_000, 10):
            writer.append(Frame(step, 0.0, 0.01, None, None, np.ones((1, 2), np.float32)))
    window = RunReader(path).window("grad_norm", 0, 20_000, 10)
    assert window.steps[0] == 0
    assert 10 <= len(window.steps) <= 160


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    strides=st.lists(
        st.tuples(st.sampled_from([1, 2, 5, 17, 100, 300]), st.integers(1, 400)), min_size=1, max_size=12
    ),
    keep=st.sampled_from([1, 5, 33, 400]),
    every=st.sampled_from([1, 37, 500]),
)
def test_what_one_level_has_lost_the_next_holds_in_whole_buckets(
    strides: list[tuple[int, int]], keep: int, every: int
) -> None:
    steps = np.cumsum([stride for stride, number in strides for _ in range(number)])
    thinner = thinning.Thinner(keep)
    rows: dict[int, set[int]] = {level: set() for level in range(6)}  # the first step of each row that is there
    ever: dict[int, set[int]] = {level: set() for level in range(6)}
    for number, step in enumerate(steps.tolist()):
        thinner.add(step)
        for level in range(6):
            rows[level].add(step // 16**level * 16**level)
            ever[level].add(step // 16**level * 16**level)
        if number % every and step != steps[-1]:
            continue
        for level, (start, stop) in thinner.drop():
            gone = {row for row in rows[level] if start <= row < stop}
            assert gone
            rows[level] -= gone
    end = int(steps[-1]) + 1
    for level in range(6):
        kept, all_rows = sorted(rows[level]), sorted(ever[level])
        assert kept[:16] == all_rows[:16]
        newest = keep if level == 0 else 32
        assert kept[-newest:] == all_rows[-newest:]
        pieces = thinning.plan(0, end, level, thinner.gaps)
        assert [start for _, start, _ in pieces] == [0, *(stop for *_, stop in pieces[:-1])]
        assert pieces[-1][2] == end
        for at, start, stop in pieces:
            assert start % 16**at == 0
            assert stop % 16**at == 0 or stop == end
            assert {row for row in ever[at] if start <= row < stop} <= rows[at]
