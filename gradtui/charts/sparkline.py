"""Values as one line of block characters."""

from __future__ import annotations

import numpy as np

from gradtui.charts.cells import NONFINITE
from gradtui.charts.resampling import Levels, even_groups, in_units, levels_of, mean_groups
from gradtui.charts.scale import DECADES
from gradtui.charts.spec import Array

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Array, width: int, log: bool = False) -> str:
    """Values as one line of exactly `width` cells, growing from the left; ✕ where one is not finite.

    Zero and below sit at the bottom of a log line. A constant line runs at half height.
    """
    width = max(0, width)
    raw = np.asarray(values, dtype=np.float64).reshape(1, -1)
    count = raw.shape[1]
    if not count or not width:
        return " " * width
    bad = ~np.isfinite(raw)
    units = in_units(raw, log)
    known = units[np.isfinite(units)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    if log:
        low = max(low, high - DECADES)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = (low - 0.5, low + 0.5) if log or abs(low) < 1 else (low - abs(low), low + abs(low))
    cells = min(count, width)
    levels = mean_groups(Levels(levels_of(units, low, high), bad), *even_groups(count, cells))
    top = len(BLOCKS) - 1
    return "".join(
        NONFINITE if poisoned else BLOCKS[min(top, int(level * len(BLOCKS)))]
        for level, poisoned in zip(levels.values[0].tolist(), levels.bad[0].tolist(), strict=True)
    ).ljust(width)
