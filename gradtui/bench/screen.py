"""All that benchmarks know of the screen: how its charts are drawn, what it says, which keys it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradtui.i18n import Words, catalogue
from gradtui.ui.actions import ACTIONS
from gradtui.ui.charts import painting
from gradtui.ui.session.session import Lab
from gradtui.ui.session.site_table import Filter, SiteTable

LANGUAGE = "en"
WORDS = Words(LANGUAGE)
PANE = (51, 17)  # a chart of a 140×44 screen, cells
TABLE_ROWS = 40

LOADING = WORDS("header.splash")  # on the first frame
OPENED = WORDS("list.title")  # on the lab's
_TYPED = {"space": " "}


class Screen:
    """The charts and the table of sites of some run files, without a terminal; close it after use."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._lab = Lab.of_files(files)

    def draw_charts(self) -> None:
        """Two depth charts, the loss and the heat map; the files are read anew."""
        lanes = self._lab.shown
        for painter in (
            painting.depth_painter(lanes, "stream_grad", None, True, WORDS, ""),
            painting.depth_painter(lanes, "act_rms", None, False, WORDS, ""),
            painting.heat_painter(
                lanes[0], "stream_grad", None, log=True, log_steps=True, mode="color", words=WORDS, empty=""
            ),
            painting.loss_painter(lanes, None, log_steps=True, words=WORDS, empty=""),
        ):
            painter(*PANE)

    def make_site_table(self, pattern: str, sort: str) -> None:
        """The first file's table: read, filtered by the regular expression, sorted, and its first page written."""
        rows = SiteTable(filter=Filter.of(pattern), sort=sort)
        rows.update(self._lab.shown[0], None)
        for site in rows.rows[:TABLE_ROWS]:
            rows.note(site, WORDS)
            for metric in rows.columns:
                rows.cell(site, metric)

    def close(self) -> None:
        """Close the files."""
        self._lab.close()


def typed(action: str) -> str:
    """What a terminal sends when the first key of `action` is pressed."""
    key = ACTIONS[action].key
    return _TYPED.get(key, key)


def heat_map_titles() -> list[str]:
    """How the heat map's title begins for each metric, as far as it takes to tell it from all others.

    The rest of a title may be cut off on the screen.
    """
    metrics = [text for key, text in catalogue(LANGUAGE).items() if key.startswith(("metric.", "heat."))]
    titles = list(dict.fromkeys(WORDS("pane.heat", metric=metric) for metric in metrics))

    def is_unique(beginning: str) -> bool:
        return sum(title.startswith(beginning) for title in titles) == 1

    return [next((t[:end] for end in range(1, len(t)) if is_unique(t[:end])), t) for t in titles]
