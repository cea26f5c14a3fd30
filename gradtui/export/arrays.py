"""A run as a NumPy archive, written member by member and block by block."""

from __future__ import annotations

import zipfile
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradtui.export import LOSS, Choice, ExportError
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT


def write_npz(run: RunReader, choice: Choice, file: IO[bytes]) -> None:
    """`steps`, `loss`, `lr` [steps]; `metric_NAME` [steps, sites], NaN where absent, and `nonfinite_NAME`.

    `sites`, `layers` and `streams` (-1 where there is none), `kinds`, `stacks` [sites]; `events`, structured.
    Loads without pickle. Raises ExportError if the run drops steps while it is read.
    """
    steps, loss, lr = run.columns(choice.stop)
    chosen = steps >= choice.start
    steps, sites = steps[chosen], run.sites
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        _save(archive, "steps", steps)
        _save(archive, "lr", lr[chosen])
        if LOSS in choice.metrics:
            _save(archive, "loss", loss[chosen])
        _save(archive, "sites", np.array([site.name for site in sites], dtype=np.str_))
        _save(archive, "layers", np.array([-1 if s.layer is None else s.layer for s in sites], np.int64))
        _save(archive, "streams", np.array([-1 if s.stream is None else s.stream for s in sites], np.int64))
        _save(archive, "kinds", np.array([site.kind for site in sites], dtype=np.str_))
        _save(archive, "stacks", np.array([site.stack for site in sites], dtype=np.str_))
        _save(archive, "events", _events(run, choice))
        for metric in choice.metrics:
            if metric == LOSS:
                continue
            for prefix, dtype in (("metric", np.float32), ("nonfinite", np.bool_)):
                with archive.open(f"{prefix}_{metric}.npy", "w", force_zip64=True) as member:
                    header = {"descr": npy.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
                    npy.write_array_header_2_0(member, {**header, "shape": (len(steps), len(sites))})
                    rows = 0
                    for block in run.blocks([metric], choice.start, choice.stop):
                        raw = block.values[:, 0]
                        known = np.where(raw == ABSENT, np.float32(np.nan), raw)
                        member.write((known if prefix == "metric" else ~np.isfinite(raw)).tobytes())
                        rows += len(raw)
                if rows != len(steps):
                    raise ExportError(f"{run.path} has dropped steps while it was read; export it again")


def _save(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        npy.write_array(member, array, allow_pickle=False)


def _events(run: RunReader, choice: Choice) -> NDArray[Any]:
    events = [event for event in run.events() if choice.start <= event.step < choice.stop]

    def text(values: list[str]) -> str:
        return f"U{max(1, max(map(len, values), default=1))}"

    kinds, texts = [event.kind for event in events], [event.text for event in events]
    layout = [("step", "i8"), ("kind", text(kinds)), ("site", "i8"), ("value", "f8"), ("text", text(texts))]
    rows = [
        (e.step, e.kind, -1 if e.site is None else e.site, np.nan if e.value is None else e.value, e.text)
        for e in events
    ]
    return np.array(rows, dtype=layout)
