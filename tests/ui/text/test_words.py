"""Words on the screen: verdicts, folding, footer, saved pictures."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import make_sites
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from gradtui.analysis.verdict import Verdict
from gradtui.i18n import LANGUAGES, Words
from gradtui.ui.actions import ACTIONS, applicable, describe
from gradtui.ui.charts.loss import trailing_mean
from gradtui.ui.charts.steps import axis_end
from gradtui.ui.session.lane import MARKS, look
from gradtui.ui.session.layout import PANES, arrange
from gradtui.ui.session.view_state import ViewState
from gradtui.ui.svg import with_cell_widths
from gradtui.ui.text.folding import fold
from gradtui.ui.text.footer import footer
from gradtui.ui.text.verdict import STATE_COLORS, STATE_MARKS, verdict_in_words

VANISHED = Verdict("vanished", 2e-4, 5000, since=14, first=14, by_first_steps=True)


@pytest.mark.parametrize(
    ("verdict", "english", "chinese"),
    [
        (VANISHED, "Layer 0 gets 2e-4 of the last layer's gradient since step 14: vanished.", "自第 14 步起"),
        (VANISHED, "the first optimizer steps began this, not the initialisation", "而不是初始化"),
        (
            Verdict("vanished", 2e-4, 5000, since=371, first=7),
            "this time since step 371, first at step 7",
            "最早在第 7 步",
        ),
        (Verdict("healthy", 4.7, 4.7), "Healthy: within 4.7× across depth; layer 0 gets the most.", "健康"),
        (Verdict("healthy", 1.2, 4), "layer 0 gets 1.2× the last layer's", "末层的 1.2 倍"),
        (Verdict("uneven", 10, 2452), "Uneven: the gradient differs 2452× across depth", "不均匀"),
        (
            Verdict("nonfinite", np.nan, np.nan, since=37, site=6, direction="forward"),
            "Non-finite at step 37, first in layer 2 feed-forward (forward pass).",
            "第 37 步出现非有限值，最先在第 2 层前馈（前向）",
        ),
        (Verdict("nonfinite", 1, 1, since=3, direction="loss"), "the loss itself", "损失本身"),
        (Verdict("healthy", 0.5, 2, recovered=90), "came back at step 90", "在第 90 步恢复"),
        (Verdict("exploding", 2e3, 2e3), "explodes towards the input", "爆炸"),
        (Verdict("fading", 0.05, 20), "fading", "减弱"),
        (Verdict("silent", np.nan, np.nan), "No gradient leaves the last layer", "没有梯度"),
        (None, "No data yet", "还没有数据"),
    ],
)
def test_a_verdict_is_said_in_both_languages(verdict: Verdict | None, english: str, chinese: str) -> None:
    sites = make_sites(4)
    assert english in verdict_in_words(verdict, sites, Words("en"))
    assert chinese in verdict_in_words(verdict, sites, Words("zh"))


@given(st.text(alphabet="ab 中文，。（）\n·", max_size=60), st.integers(2, 20))
def test_folding_fits_the_width_and_keeps_every_character(text: str, width: int) -> None:
    folded = fold(Text(text), width).plain
    assert all(cell_len(line) <= width for line in folded.split("\n"))
    assert re.sub(r"\s", "", folded) == re.sub(r"\s", "", text)


def test_chinese_breaks_between_characters_and_never_before_a_full_stop() -> None:
    lines = fold(Text("▣ 收费站设在主干上：每个梯度都要付费。"), 20).plain.split("\n")
    assert lines[0] == "▣ 收费站设在主干上："
    assert not any(line[0] in "，。：" for line in lines)
    assert fold(Text("the norm on the trunk"), 10).plain == "the norm\non the\ntrunk"


@pytest.mark.parametrize("width", [50, 60, 80, 100, 140])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_footer_fits_and_always_tells_how_to_get_help_and_out(width: int, language: str) -> None:
    words = Words(language)
    text = footer(applicable(True), words, width)
    assert text.cell_len <= width
    for name in ("help", "quit"):
        assert f" {ACTIONS[name].key} {describe(name, words)}" in text.plain


def test_marks_of_states_are_not_marks_of_curves_and_all_states_have_one() -> None:
    assert not set(STATE_MARKS.values()) & set(MARKS)
    assert STATE_MARKS.keys() == STATE_COLORS.keys()
    assert len({look(number) for number in range(88)}) == 88


@given(st.integers(1, 300), st.integers(1, 100), st.sampled_from(PANES), st.booleans(), st.booleans())
def test_every_size_has_a_layout_that_shows_the_active_pane(
    width: int, height: int, active: str, zoomed: bool, quiz: bool
) -> None:
    layout = arrange(width, height, ViewState(active=active, zoomed=zoomed, quiz=quiz))
    assert layout.quiz <= width
    assert (layout.quiz > 0) == (quiz and layout.fits)
    if layout.fits:
        assert layout.side != layout.bar
        assert active in layout.panes or (quiz and layout.quiz == width)


@given(st.integers(0, 100_000), st.integers(0, 5_000))
def test_a_time_axis_holds_the_run_and_is_at_most_a_few_times_longer(last: int, steps: int) -> None:
    end = axis_end(last, steps)
    assert end >= last
    assert end <= max(20, 3 * last + 3, steps)


def test_the_loss_shown_is_the_mean_of_the_last_ten() -> None:
    values = np.arange(30.0)
    smooth = trailing_mean(values, 10)
    assert smooth[0] == 0
    assert smooth[3] == pytest.approx(1.5)
    assert smooth[29] == pytest.approx(np.mean(values[20:]))
    values[25] = np.nan
    assert trailing_mean(values, 10)[29] == pytest.approx(np.nanmean(values[20:]))


def test_a_saved_picture_gives_wide_characters_two_cells() -> None:
    svg = '<text x="0" textLength="24.4" clip-path="url(#a)">中文</text><text textLength="36.6" >abc</text>'
    fixed = with_cell_widths(svg)
    assert 'textLength="48.8"' in fixed
    assert 'textLength="36.6"' in fixed
