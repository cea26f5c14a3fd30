"""A NumPy archive opens without pickle and holds what the run holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from export.conftest import Opened

from gradtui.export.arrays import write_npz


def test_a_numpy_archive_opens_without_pickle_and_holds_the_same(
    spoilt: Path, opened: Opened, tmp_path: Path
) -> None:
    run, choice = opened(spoilt, start=1)
    with (tmp_path / "a.npz").open("wb") as file:
        write_npz(run, choice, file)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["steps"].tolist() == [1, 2]
        np.testing.assert_array_equal(archive["loss"], [np.nan, np.inf])
        np.testing.assert_array_equal(archive["metric_grad_norm"], run.metric("grad_norm")[1:])
        assert archive["nonfinite_grad_norm"][0, :5].tolist() == [False, True, True, True, False]
        assert archive["sites"].tolist() == [site.name for site in run.sites]
        assert archive["layers"][:4].tolist() == [-1, 0, 0, 1]
        assert archive["streams"][:3].tolist() == [0, -1, 1]
        (event,) = archive["events"]
        assert (event["step"], event["kind"], event["site"], event["text"]) == (1, "nonfinite", 1, "forward")
