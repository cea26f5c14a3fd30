"""Which presets make a comparison in which only the norm and its place differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gradtui.presets import Preset
from gradtui.ui.session.lane import Lane

CORNERS = tuple((norm, topology) for norm in ("layernorm", "rmsnorm") for topology in ("post", "pre"))


def square(lanes: Iterable[Lane]) -> list[str]:
    """The first lane of each LayerNorm/RMSNorm × Post/Pre that differ in nothing else; [] if not all are there.

    What they have in common is what the first preset of `lanes` has.
    """
    found: dict[tuple[str, str], str] = {}
    base: Preset | None = None
    for lane in lanes:
        preset = lane.preset
        if preset is None:
            continue
        base = base or preset
        model = preset.model
        like = msgspec.structs.replace(model, norm=base.model.norm, topology=base.model.topology)
        if (like, preset.training, preset.corpus) == (base.model, base.training, base.corpus):
            found.setdefault((model.norm, model.topology), lane.id)
    return [found[corner] for corner in CORNERS] if all(corner in found for corner in CORNERS) else []
