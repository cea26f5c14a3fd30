"""What came out, for people and for machines. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradtui.presets import Language
from gradtui.verify.bounds import CAVEAT, FAILS, HOLDS, Verdict, median
from gradtui.verify.claims import Claim

MARKS: dict[Verdict, str] = {HOLDS: "✓", CAVEAT: "≈", FAILS: "✗"}
NOT_RUN = "–"
WORDS: dict[Language, dict[str, str]] = {
    "en": {
        HOLDS: HOLDS, CAVEAT: CAVEAT, FAILS: FAILS, "none": "could not be checked",
        "head": "CLAIM,MEASURED,LOW … HIGH,BOUND,VERDICT", "seeds": "seeds", "stop": ": ",
    },
    "zh": {
        HOLDS: "成立", CAVEAT: "成立，但有保留", FAILS: "在此不成立", "none": "未能检验",
        "head": "论断,测得,最低 … 最高,界限,结论", "seeds": "种子", "stop": "：",
    },
}  # fmt: skip


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


def table(results: Sequence[Result], language: Language) -> Iterator[str]:
    """Lines: one row a claim, and under each that needs it what it says and what is to be added."""
    from rich.cells import cell_len

    words = WORDS[language]
    rows = [("", *words["head"].split(","))]
    for result in results:
        low, high = _ends(result.values)
        rows.append(
            (
                MARKS[result.verdict] if result.verdict else NOT_RUN,
                result.claim.id,
                number(median(result.values)) if result.verdict else "",
                f"{number(low)} … {number(high)}" if result.verdict else "",
                result.claim.bound,
                words[result.verdict or "none"],
            )
        )
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
        if index == 0:
            continue
        result = results[index - 1]
        yield f"{'':{widths[0]}}  {result.claim.lesson}{words['stop']}{result.claim.says(language)}"
        if result.problem:
            yield f"{'':{widths[0]}}  → {result.problem}"
        elif result.verdict != HOLDS and result.claim.adds(language):
            yield f"{'':{widths[0]}}  → {result.claim.adds(language)}"


def number(value: float) -> str:
    """Three significant digits."""
    if math.isnan(value):
        return "NaN"
    if value and (abs(value) < 1e-3 or abs(value) >= 1e5):
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.3g}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    if not values or any(math.isnan(value) for value in values):
        return math.nan, math.nan
    return min(values), max(values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
