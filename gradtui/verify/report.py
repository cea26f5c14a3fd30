"""What came out, for people and for machines. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from gradtui.i18n import Words
from gradtui.verify.claims import Claim
from gradtui.verify.judge import CAVEAT, FAILS, HOLDS, Verdict, median

MARKS: dict[Verdict, str] = {HOLDS: "✓", CAVEAT: "≈", FAILS: "✗"}
NOT_CHECKED = "–"
# Keys of what a verdict is called in the user's language.
_VERDICTS: dict[Verdict, str] = {HOLDS: "verify.holds", CAVEAT: "verify.caveat", FAILS: "verify.fails"}
_COLUMNS = ("claim", "measured", "range", "bound", "verdict")


@dataclass(frozen=True, slots=True)
class Result:
    """A claim and what was measured, one value a seed; or `problem`, why it could not be checked."""

    claim: Claim
    seeds: tuple[int, ...]
    values: tuple[float, ...] = ()
    verdict: Verdict | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """For machines. `measured` is the median over seeds, `spread` the largest minus the smallest value.

        A claim that could not be checked has a verdict of null, as has a number that is not finite.
        """
        low, high = _ends(self.values)
        return {
            "id": self.claim.id,
            "verdict": self.verdict,
            "measured": _finite(median(self.values)),
            "spread": _finite(high - low),
            "bound": self.claim.bound,
            "seeds": list(self.seeds),
        }


def table(results: Sequence[Result], language: str) -> Iterator[str]:
    """Lines: one row a claim, and under each that needs it what it says and what is to be added."""
    words = Words(language)
    rows = [
        ("", *(words(f"verify.{column}") for column in _COLUMNS)),
        *(_row(result, words) for result in results),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    indent = " " * (widths[0] + 2)
    for row, result in zip(rows, (None, *results), strict=True):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
        if result is None:
            continue
        claim = result.claim
        yield indent + words("verify.says", lesson=claim.lesson, claim=claim.says(language))
        if result.problem:
            yield f"{indent}→ {result.problem}"
        elif result.verdict != HOLDS and claim.adds(language):
            yield f"{indent}→ {claim.adds(language)}"


def _row(result: Result, words: Words) -> tuple[str, ...]:
    """Mark, id, median, range over seeds, bound, verdict."""
    claim = result.claim
    if result.verdict is None:
        return (NOT_CHECKED, claim.id, "", "", claim.bound, words("verify.none"))
    low, high = (number(end) for end in _ends(result.values))
    middle = number(median(result.values))
    return (
        MARKS[result.verdict],
        claim.id,
        middle,
        f"{low} … {high}",
        claim.bound,
        words(_VERDICTS[result.verdict]),
    )


def number(value: float) -> str:
    """Three significant digits."""
    if math.isnan(value):
        return "NaN"
    if value and (abs(value) < 1e-3 or abs(value) >= 1e5):
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.3g}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Smallest and largest; NaN where any value is NaN or there is none."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan, math.nan
    return min(values), max(values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
