"""What a run measures at some steps only is shown as it was measured last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from conftest import make_frame, make_sites

from gradtui.charts.scale import format_number
from gradtui.metrics import SITE_METRICS
from gradtui.runs.schema import ABSENT
from gradtui.runs.writer import RunWriter
from gradtui.ui.session.session import Session
from gradtui.ui.session.site_table import SiteTable

UPDATE = SITE_METRICS.index("update_ratio")


def test_the_last_update_is_shown_between_the_steps_at_which_it_is_measured(tmp_path: Path) -> None:
    sites = make_sites(3)
    with RunWriter(tmp_path / "a.gradtui", sites, {"source": "script", "closely": ["update_ratio"]}) as writer:
        for step in range(28):
            frame = make_frame(sites, step)
            frame.values[UPDATE] = step / 1000 if step % 10 == 0 else ABSENT
            writer.append(frame)
    session = Session.of_files([tmp_path / "a.gradtui"])
    [lane] = session.lanes.values()
    for cursor, measured in ((None, 20), (27, 20), (20, 20), (19, 10)):
        curve = lane.curve("update_ratio", cursor)
        assert curve is not None
        np.testing.assert_allclose(curve.y, measured / 1000, rtol=1e-6)
        table = SiteTable()
        table.update(lane, cursor)
        assert table.cell(0, "update_ratio") == (format_number(measured / 1000), False)
    field = lane.ask(lambda run: run.field("update_ratio", 60))
    assert field is not None
    assert list(field.steps) == [0, 10, 20]
    session.close()
