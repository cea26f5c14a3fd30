"""Waiting times in words."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.lesson.words import due_in_words


@pytest.mark.parametrize(
    ("delta", "english", "chinese"),
    [
        (timedelta(days=-3), "now", "现在"),
        (timedelta(0), "now", "现在"),
        (timedelta(seconds=20), "in under a minute", "不到 1 分钟后"),
        (timedelta(seconds=59), "in 1 minute", "1 分钟后"),
        (timedelta(minutes=9, seconds=58), "in 10 minutes", "10 分钟后"),
        (timedelta(minutes=59, seconds=50), "in 1 hour", "1 小时后"),
        (timedelta(hours=5), "in 5 hours", "5 小时后"),
        (timedelta(hours=23, minutes=50), "in 1 day", "1 天后"),
        (timedelta(days=3), "in 3 days", "3 天后"),
        (timedelta(days=75), "in 2 months", "2 个月后"),
        (timedelta(days=364), "in 1 year", "1 年后"),
        (timedelta(days=36500), "in 100 years", "100 年后"),
    ],
)
def test_waiting_times(delta: timedelta, english: str, chinese: str) -> None:
    assert due_in_words(delta, "en") == english
    assert due_in_words(delta, "zh") == chinese


@given(st.timedeltas())
def test_every_waiting_time_has_words(delta: timedelta) -> None:
    pattern = r"now|in under a minute|in (1 [a-z]+[a-rt-z]|([2-9]|\d{2,}) [a-z]+s)"
    assert re.fullmatch(pattern, due_in_words(delta, "en"))
    assert re.fullmatch(r"现在|不到 1 分钟后|[1-9]\d* (分钟|小时|天|个月|年)后", due_in_words(delta, "zh"))
