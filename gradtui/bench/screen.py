"""All that benchmarks know of the screen: how its charts are drawn, what it says, which keys it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradtui.analysis.series import RunSeries
from gradtui.i18n import Words, catalogue
from gradtui.ui.actions import ACTIONS
from gradtui.ui.charts.panes import PANE_SPECS
from gradtui.ui.session.layout import arrange
from gradtui.ui.session.session import Session
from gradtui.ui.session.site_table import Filter, SiteTable
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState

LANGUAGE = "en"
WORDS = Words(LANGUAGE)
SIZE = (140, 44)  # cells of the screen
PANE = (51, 17)  # and of one of its charts
TABLE_ROWS = 40

LOADING = WORDS("header.splash")  # on the first frame
OPENED = WORDS("list.title")  # on the lab's
_TYPED = {"space": " "}


class Screen:
    """The charts and the table of sites of some run files, without a terminal; close it after use."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._session, self._view = Session.of_files(files), ViewState()

    def draw_charts(self) -> None:
        """Every pane of a wide screen; the files are read each time."""
        for lane in self._session.shown:
            lane.ask(RunSeries.digest)
        layout = arrange(*SIZE, self._view)
        snapshot = LabSnapshot(self._session, self._view, WORDS, layout, "color", *SIZE)
        for pane in layout.panes:
            PANE_SPECS[pane](snapshot).paint(*PANE)

    def make_site_table(self, pattern: str, sort: str) -> None:
        """The first file's table: read, filtered by the regular expression, sorted, and its first page written."""
        rows = SiteTable(filter=Filter.of(pattern), sort=sort)
        rows.update(self._session.shown[0], None)
        for site in rows.rows[:TABLE_ROWS]:
            rows.note(site, WORDS)
            for metric in rows.columns:
                rows.cell(site, metric)

    def close(self) -> None:
        """Close the files."""
        self._session.close()


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
