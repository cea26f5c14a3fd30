"""Results for people and for machines."""

from __future__ import annotations

import math

import pytest
from rich.cells import cell_len
from verify.conftest import a_claim

from gradtui.i18n import LANGUAGES
from gradtui.verify.judge import CAVEAT, FAILS, HOLDS
from gradtui.verify.report import Result, number, table


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.2345, "1.23"), (-0.2, "-0.2"), (8.31e-4, "8.3e-4"), (1e-15, "1.0e-15"), (float("nan"), "NaN")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_result_for_machines_has_median_spread_and_bound_and_null_for_what_is_not_finite():
    result = Result(a_claim("a"), (0, 1, 2), (1.0, 4.0, 2.0), CAVEAT)
    expected = {"id": "a", "verdict": "holds with a caveat", "measured": 2.0, "spread": 3.0, "bound": "> 0"}
    assert result.as_json() == {**expected, "seeds": [0, 1, 2]}
    lost = Result(a_claim("a"), (0,), (math.nan,), FAILS).as_json()
    assert (lost["verdict"], lost["measured"], lost["spread"]) == ("does not hold here", None, None)


def test_a_table_has_a_row_a_claim_and_below_it_what_it_says_and_what_is_to_be_added():
    claims = [a_claim("first", note="n"), a_claim("second", note="n", caveat=True), a_claim("third")]
    results = [
        Result(claims[0], (0, 1), (1.0, 3.0), HOLDS),
        Result(claims[1], (0,), (2.0,), CAVEAT),
        Result(claims[2], (0,), problem="there is no preset x"),
    ]
    assert list(table(results, "en")) == [
        "   CLAIM   MEASURED  LOW … HIGH  BOUND  VERDICT",
        "✓  first   1         1 … 3       > 0    holds",
        "   §2: It is so.",
        "≈  second  2         2 … 2       > 0    holds with a caveat",
        "   §2: It is so.",
        "   → n",
        "–  third                         > 0    could not be checked",
        "   §2: It is so.",
        "   → there is no preset x",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_columns_stand_below_one_another_in_every_language(language):
    results = [
        Result(a_claim("short"), (0,), (1.0,), HOLDS),
        Result(a_claim("a-longer-name"), (0,), (2.0,), FAILS),
        Result(a_claim("none"), (0,), problem="there is no preset x"),
    ]
    head, *rows = [line for line in table(results, language) if "§" not in line and "→" not in line]
    starts = {cell_len(row[: row.index("> 0")]) for row in rows}
    assert len(starts) == 1
    assert head[0] == " "
    assert cell_len(head) > starts.pop()
