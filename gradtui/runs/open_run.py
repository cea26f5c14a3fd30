"""A run file for notebooks: its numbers as NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradtui import paths
from gradtui.runs import SUFFIX
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Event, Flags, Floats, Site


def open_run(path: str | os.PathLike[str]) -> OpenRun:
    """Open a run file, finished or still being written, or one of gradtui's data directory by its name.

    Raises RunError, in one sentence, if it is none.
    """
    file = Path(path)
    if not file.exists() and file.name == str(path):  # a name of the list
        named = paths.run_directory(paths.data_directory()) / f"{path}{'' if file.suffix == SUFFIX else SUFFIX}"
        file = named if named.exists() else file
    return OpenRun(RunReader(file))


class OpenRun:
    """What a run has recorded up to now; `refresh` looks for more.

    Rows of all arrays belong to `steps`. A run that was recorded with a bound on its file has no single steps
    between `thinned[0]` and `thinned[1]`.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    @property
    def path(self) -> Path:
        """The file."""
        return self._reader.path

    @property
    def sites(self) -> tuple[Site, ...]:
        """The measured sites, in forward order: the columns of `metric`."""
        return self._reader.sites

    @property
    def metrics(self) -> tuple[str, ...]:
        """What `metric` can be asked for."""
        return self._reader.metrics

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run says about itself: preset or script, seed, device, versions …"""
        return self._reader.facts

    @property
    def status(self) -> str:
        """running, paused, done, diverged, failed, stopped or died."""
        return self._reader.status

    @property
    def events(self) -> list[Event]:
        """Alarms, skipped steps and notes, oldest first."""
        return self._reader.events()

    @property
    def thinned(self) -> tuple[int, int] | None:
        """(start, stop) of the steps that are no longer there one by one; None if all are."""
        return self._reader.thinned

    @cached_property
    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        # A run that goes on must not make one array longer than the other: nothing beyond the last refresh.
        return self._reader.columns(self._reader.last_step + 1)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The recorded steps, [steps]."""
        return self._columns[0]

    @property
    def loss(self) -> NDArray[np.float64]:
        """Loss in nats, [steps]; NaN also where none was given."""
        return self._columns[1]

    @property
    def lr(self) -> NDArray[np.float64]:
        """Learning rate, [steps]; NaN where it is not known."""
        return self._columns[2]

    def metric(self, name: str) -> Floats:
        """One metric, [steps, sites]: NaN where there is no value, non-finite values as they were.

        Raises RunError, which says what there is, for a metric that the run does not have.
        """
        raw = self._raw(name)
        return np.where(raw == ABSENT, np.float32(np.nan), raw)

    def nonfinite(self, name: str) -> Flags:
        """Where a metric was NaN or infinite, [steps, sites]; any other NaN of `metric` was never there."""
        return ~np.isfinite(self._raw(name))

    def _raw(self, name: str) -> Floats:
        steps = self.steps
        values = np.full((len(steps), len(self.sites)), np.float32(ABSENT))
        stop = int(steps[-1]) + 1 if len(steps) else 0
        for block in self._reader.blocks([name], stop=stop):
            # A bounded run that goes on may have dropped steps since; what is gone stays absent.
            there = np.isin(block.steps, steps)
            values[np.searchsorted(steps, block.steps[there])] = block.values[there, 0]
        return values

    def refresh(self) -> bool:
        """Read what a run that goes on has recorded since; True if there was anything."""
        if not self._reader.refresh():
            return False
        self.__dict__.pop("_columns", None)
        return True

    def close(self) -> None:
        """Close the file; nothing more can be read."""
        self._reader.close()

    def __enter__(self) -> OpenRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        first, last = self._reader.first_step, self._reader.last_step
        steps = f"steps {first}…{last}" if last >= 0 else "no step yet"
        thinned = f" (single steps {self.thinned[0]}…{self.thinned[1] - 1} dropped)" if self.thinned else ""
        return (
            f"<run {self.path.name!r}: {self.status}, {steps}{thinned}, {len(self.sites)} sites,"
            f" {', '.join(self.metrics)}>"
        )
