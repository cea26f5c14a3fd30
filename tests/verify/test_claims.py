"""Every shipped claim can be read and names what exists; a mistake in one is one sentence."""

from __future__ import annotations

import pytest
from verify.conftest import a_claim, a_sample

from gradtui.i18n import LANGUAGES
from gradtui.presets import load_library
from gradtui.verify import benchmarks, invariants
from gradtui.verify.claims import BENCHMARKS, INVARIANTS, ClaimError, load_claims

CLAIMS = load_claims().claims


def test_every_shipped_claim_is_read():
    assert not load_claims().errors
    assert len(CLAIMS) >= 40


@pytest.mark.parametrize("name", CLAIMS)
def test_a_shipped_claim_is_there_in_every_language_and_is_about_shipped_presets(name):
    claim = CLAIMS[name]
    assert claim.says("zh") != claim.says("en")
    assert set(claim.text.given()) == set(LANGUAGES)
    assert set(claim.note.given()) in (set(), set(LANGUAGES))
    assert set(claim.presets()) <= set(load_library().presets)
    assert claim.lesson.startswith("§")


def test_every_invariant_and_benchmark_is_a_function_and_is_used_by_a_claim():
    assert all(callable(getattr(invariants, name)) for name in INVARIANTS)
    assert all(callable(getattr(benchmarks, name)) for name in BENCHMARKS)
    used = {claim.measure.name for claim in CLAIMS.values()}
    assert {*INVARIANTS, *BENCHMARKS} <= used


def test_the_quick_set_trains_little():
    quick = [claim for claim in CLAIMS.values() if claim.quick]
    assert len(quick) >= 10
    assert all(sample.stop <= 30 for claim in quick for sample in claim.measure.samples)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bound": "small"}, "bound = 'small' is not allowed; allowed is < 1"),
        ({"text": "two\nlines"}, "allowed is one line of visible characters"),
        ({"lesson": " "}, "lesson = ' ' is not allowed"),
        ({"caveat": True}, "caveat = true needs a note"),
        ({"colour": "red"}, "colour is not a key of a claim"),
        ({"quick": "yes"}, "quick = 'yes' is not allowed; allowed is true or false"),
        ({"measure": {"kind": "guess"}}, "measure.kind = 'guess' is not allowed; allowed: metric, comparison"),
        ({"measure": {"kind": "metric"}}, "measure.samples has 0 entries; a metric is made of 1"),
        ({"measure": {"kind": "metric", "samples": [a_sample(quantity="los")]}}, "(did you mean loss?)"),
        ({"measure": {"kind": "metric", "samples": [a_sample(take="mode")]}}, "measure.samples[0].take = 'mode'"),
        ({"measure": {"kind": "metric", "samples": [a_sample(start=4)]}}, "start = 4 is not before stop = 4"),
        ({"measure": {"kind": "metric", "samples": [a_sample(stop=0)]}}, "measure.samples[0].stop = 0"),
        ({"measure": {"kind": "metric", "samples": [a_sample(change=3)]}}, "a table as in a preset file"),
        ({"measure": {"kind": "metric", "samples": [a_sample()], "name": "x"}}, "measure.name does not belong"),
        (
            {"measure": {"kind": "comparison", "samples": [a_sample(), a_sample()], "compare": "sum"}},
            "measure.compare = 'sum' is not allowed; allowed: difference",
        ),
        ({"measure": {"kind": "comparison", "samples": [a_sample()], "compare": "ratio"}}, "is made of 2"),
        ({"measure": {"kind": "invariant", "name": "luck"}}, "measure.name = 'luck'"),
        ({"measure": {"kind": "invariant", "name": "trunk_share"}}, "measure.preset is missing for trunk_share"),
        ({"measure": {"kind": "benchmark", "name": "norm_time", "mode": "torch", "passed": "both"}}, "backward"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_is_allowed(changes, words):
    with pytest.raises(ClaimError) as error:
        a_claim(**changes)
    message = str(error.value)
    assert words in message
    assert message.startswith("test: ")
    assert "\n" not in message


def test_an_unknown_claim_is_refused_with_the_nearest_name():
    with pytest.raises(ClaimError, match="there is no claim 'post-ln-colapses'; did you mean post-ln-collapses"):
        load_claims().pick(["post-ln-colapses"])


def test_one_bad_file_hides_no_good_one(own_presets):
    (own_presets / "claims" / "bad.toml").write_text("text = ")
    (own_presets / "claims" / "post-ln-sticks.toml").write_text('id = "x"')
    found = load_claims([own_presets])
    assert set(found.claims) == set(CLAIMS)
    assert [str(error).partition(":")[0].rpartition("/")[2] for error in found.errors] == [
        "bad.toml",
        "post-ln-sticks.toml",
    ]
    with pytest.raises(ClaimError, match=r"bad\.toml: is not valid TOML"):
        found.pick(["bad"])
