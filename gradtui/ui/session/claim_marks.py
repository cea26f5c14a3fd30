"""The claims about a preset, with their marks as its run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.presets import Preset, load_library
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.ui.panels.text_line import spread
from gradtui.ui.session.lane import LaneView

if TYPE_CHECKING:
    from gradtui.verify.claims import Claim
    from gradtui.verify.live import Marked

# None of these is among the marks of a verdict but the ones that mean the same.
MARKS = {"holds": ("✓", "#009e73"), "not yet": ("…", "dim"), "does not hold": ("✗", "#d55e00")}


@dataclass(slots=True)
class Standing:
    """The claims that one run can decide, and where they stood when it was looked at last."""

    reader: RunReader
    claims: list[Claim]
    marked: list[Marked] = field(default_factory=list)
    seen: tuple[int, str] = (-1, "")  # the run's last step and state then


@dataclass(slots=True)
class Claims:
    """All claims, read when the first lane is looked at that they may be about."""

    _all: Mapping[str, Claim] | None = None
    _presets: Mapping[str, Preset] | None = None
    _standing: dict[str, Standing] = field(default_factory=dict)

    def of(self, lane: LaneView | None) -> list[Marked]:
        """The claims about this lane's preset, in order; none where its run is another experiment."""
        reader = None if lane is None else lane.reader
        if lane is None or reader is None or lane.preset is None or lane.last_step < 0:
            return []
        from gradtui.verify import live

        standing = self._standing.get(lane.id)
        if standing is None or standing.reader is not reader:
            preset = self._preset_of(lane)
            found = [] if preset is None else live.claims_of(preset, self._read().values(), reader.facts)
            standing = self._standing[lane.id] = Standing(reader, found)
        now = lane.last_step, reader.status
        if standing.claims and standing.seen != now:
            try:
                standing.marked = live.marks(reader, standing.claims, standing.marked)
            except RunError as error:
                lane.give_up(str(error))
                return []
            standing.seen = now
        return standing.marked

    def _preset_of(self, lane: LaneView) -> Preset | None:
        """What the claims are about: the preset as it stands, not as a recorded run may have had it."""
        if not lane.recorded or lane.preset is None:
            return lane.preset
        if self._presets is None:
            self._presets = load_library().presets
        return self._presets.get(lane.preset.id)

    def _read(self) -> Mapping[str, Claim]:
        if self._all is None:
            from gradtui.verify.claims import load_claims

            self._all = load_claims().claims
        return self._all


def lines(marked: list[Marked], words: Words, width: int) -> Text:
    """One line a claim: its mark, what it says, and what is measured against which bound."""
    rows = []
    for one in marked:
        glyph, color = MARKS[one.mark]
        left = Text()
        left.append(f"{glyph} ", color)
        left.append(f"{one.claim.lesson} ", "dim")
        left.append(one.claim.says(words.language), "" if one.final else "dim")
        measured = "" if one.value != one.value else f"{format_number(one.value)} · "
        rows.append(spread(left, Text(f"{measured}{one.claim.bound}", "dim"), width))
    return Text("\n", no_wrap=True).join(rows)
