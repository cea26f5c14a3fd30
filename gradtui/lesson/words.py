"""A waiting time as a learner reads it: "in 10 minutes", "10 分钟后"."""

from __future__ import annotations

from datetime import timedelta

from gradtui.i18n import Words

# Units by their key in i18n, their size in seconds, and the count from which the next larger unit is used.
_UNITS: tuple[tuple[str, int, float], ...] = (
    ("minute", 60, 60),
    ("hour", 3600, 24),
    ("day", 86400, 30),
    ("month", 30 * 86400, 12),
    ("year", 365 * 86400, float("inf")),
)


def due_in_words(delta: timedelta, language: str) -> str:
    """How long until a question comes back, to the nearest unit; "now" if it is due already."""
    words, seconds = Words(language), delta.total_seconds()
    if seconds <= 0:
        return words("due.now")
    if seconds < 30:
        return words("due.soon")
    counts = ((unit, max(1, round(seconds / size)), limit) for unit, size, limit in _UNITS)
    unit, count = next((unit, count) for unit, count, limit in counts if count < limit)
    return words(f"due.{unit}.{'one' if count == 1 else 'other'}", count=count)
