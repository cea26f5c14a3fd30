"""The claims about a preset, and how each stands as its run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradtui.presets import Preset, load_library
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.ui.session.lane import Lane

if TYPE_CHECKING:
    from gradtui.verify.claims import Claim
    from gradtui.verify.live import Marked


@dataclass(slots=True)
class _Standing:
    """The claims that one run can decide, and where they stood when it was looked at last."""

    reader: RunReader
    claims: list[Claim]
    marked: list[Marked] = field(default_factory=list)
    seen: tuple[int, str] = (-1, "")  # the run's last step and state then


@dataclass(slots=True)
class ClaimMarks:
    """Marks of all lanes; the claims are read when the first lane is looked at that they may be about."""

    _all: Mapping[str, Claim] | None = None
    _presets: Mapping[str, Preset] | None = None
    _standing: dict[str, _Standing] = field(default_factory=dict)

    def of(self, lane: Lane | None) -> list[Marked]:
        """The claims about this lane's preset, in order; [] where its run is another experiment."""
        if lane is None or lane.series is None or lane.preset is None or lane.last_step < 0:
            return []
        from gradtui.verify import live

        reader, standing = lane.series.reader, self._standing.get(lane.id)
        if standing is None or standing.reader is not reader:
            preset = self._preset_of(lane)
            found = [] if preset is None else live.claims_of(preset, self._read().values(), reader.facts)
            standing = self._standing[lane.id] = _Standing(reader, found)
        now = lane.last_step, reader.status
        if standing.claims and standing.seen != now:
            try:
                standing.marked = live.marks(reader, standing.claims, standing.marked)
            except RunError as error:
                lane.give_up(str(error))
                return []
            standing.seen = now
        return standing.marked

    def _preset_of(self, lane: Lane) -> Preset | None:
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
