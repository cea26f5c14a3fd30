"""The texts around the charts, by the name of the widget that shows each. Pure."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from gradtui.ui.session.layout import LEAST_HEIGHT, LEAST_WIDTH
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.text.explain import explain
from gradtui.ui.text.folding import fold
from gradtui.ui.text.header import header
from gradtui.ui.text.verdicts import verdicts

MEANING = "#56b4e9"  # of the metric, under the verdict


def header_line(snapshot: LabSnapshot) -> Text:
    """What the focused lane is, and how far."""
    return header(snapshot.session, snapshot.words, snapshot.width)


def verdict_lines(snapshot: LabSnapshot) -> Text:
    """The verdicts, and what the metric says."""
    width, cursor = snapshot.width - 2, snapshot.session.cursor
    text = verdicts(snapshot.session, snapshot.words, width)
    meaning = explain(snapshot.lane, snapshot.metric, cursor, snapshot.words)
    if meaning and not snapshot.view.sites:
        text = Text.assemble(text, "\n", fold(Text(meaning, MEANING), width))
    return text


def too_small(snapshot: LabSnapshot) -> Text:
    """That the terminal is too small, and how large it has to be."""
    size = {"width": snapshot.width, "height": snapshot.height}
    return Text(snapshot.words("notice.too_small", **size, least_width=LEAST_WIDTH, least_height=LEAST_HEIGHT))


LINES: dict[str, Callable[[LabSnapshot], Text]] = {
    "header": header_line,
    "verdict": verdict_lines,
    "too-small": too_small,
}
