"""Bounds are read as people write them, and NaN lies in none."""

from __future__ import annotations

import math

import pytest

from gradtui.verify.bounds import parse_bound


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("< 0.01", [0, 0.0099, -5], [0.01, 1]),
        ("≤ 0", [0, -1], [1e-12]),
        ("<= 0", [0, -1], [1e-12]),
        ("> -0.2", [0, -0.19], [-0.2, -1]),
        ("≥ 1e-3", [1e-3, 1], [9e-4]),
        ("0.5 … 2", [0.5, 1, 2], [0.499, 2.001]),
        ("-1..1", [-1, 0, 1], [1.1]),
    ],
)
def test_a_bound_contains_what_it_says(text, inside, outside):
    bound = parse_bound(text)
    assert bound is not None
    assert all(bound.contains(value) for value in inside)
    assert not any(bound.contains(value) for value in [*outside, math.nan])


@pytest.mark.parametrize("text", ["", "0.5", "< ", "<< 1", "< x", "2 … 1", "< 1e999", "about 3", "1 … "])
def test_what_is_no_bound_is_none(text):
    assert parse_bound(text) is None


@pytest.mark.parametrize(
    ("text", "take", "extreme", "settled"),
    [
        ("> 0.5", "min", 0.6, None),  # it may still fall below
        ("> 0.5", "min", 0.5, False),
        ("> 0.5", "min", 0.1, False),
        ("≥ 0.5", "min", 0.5, None),
        ("< 0.5", "min", 0.4, True),
        ("< 0.5", "min", 0.6, None),
        ("< 2", "max", 1.0, None),
        ("< 2", "max", 2.0, False),
        ("> 2", "max", 2.1, True),
        ("0.5 … 2", "max", 1.0, None),
        ("0.5 … 2", "max", 2.5, False),
        ("0.5 … 2", "min", 0.4, False),
        ("0.5 … 2", "min", 3.0, None),
    ],
)
def test_an_extreme_so_far_settles_a_bound_only_where_no_later_value_can_change_it(text, take, extreme, settled):
    bound = parse_bound(text)
    assert bound is not None
    assert bound.settled(extreme, take) is settled
