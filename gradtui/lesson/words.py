"""A waiting time as a learner reads it: "in 10 minutes", "10 分钟后"."""

from __future__ import annotations

from datetime import timedelta

# Unit sizes in seconds, and from how many of a unit on the next larger one is used.
_UNITS: tuple[tuple[str, str, int, int], ...] = (
    ("minute", "分钟", 60, 60),
    ("hour", "小时", 3600, 24),
    ("day", "天", 86400, 30),
    ("month", "个月", 30 * 86400, 12),
)
_YEAR = 365 * 86400


def due_in_words(delta: timedelta, language: str) -> str:
    """How long until a question comes back, to the nearest unit; "now" if it is due already."""
    seconds = delta.total_seconds()
    chinese = language == "zh"
    if seconds <= 0:
        return "现在" if chinese else "now"
    if seconds < 30:
        return "不到 1 分钟后" if chinese else "in under a minute"
    for english, zh, size, limit in _UNITS:
        count = max(1, round(seconds / size))
        if count < limit:
            return _phrase(count, english, zh, chinese)
    return _phrase(max(1, round(seconds / _YEAR)), "year", "年", chinese)


def _phrase(count: int, english: str, zh: str, chinese: bool) -> str:
    if chinese:
        return f"{count} {zh}后"
    return f"in {count} {english}{'' if count == 1 else 's'}"
