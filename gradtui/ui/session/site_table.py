"""The table of sites: which rows, in which order, and what each says. Only visible rows are formatted.

Legend: M metrics, S sites.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gradtui.analysis.alarms import NONFINITE
from gradtui.analysis.flow import EXPLODED, FADING, VANISHED
from gradtui.analysis.series import WEIGHTS, RunSeries, StepView
from gradtui.analysis.shapes import pieces, texts_of
from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.metrics import MEASURED, METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Event, Site
from gradtui.ui.session.lane import Lane

NAME, LAYER = "name", "layer"
COLUMNS = tuple(name for name in MEASURED if METRICS[name].owner != "sublayer")
EXACT_STEPS = 1024  # so many steps after trouble began are looked at one by one


def columns_of(metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics of a run in the order of the table's columns."""
    return tuple(name for name in COLUMNS if name in metrics)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which names are let through: a regular expression, or part of a name where it is none.

    `problem` says why it is no regular expression.
    """

    text: str = ""
    problem: str = ""
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, text: str) -> Filter:
        """The filter for a text that was typed; letters match in either case."""
        if not text:
            return cls()
        try:
            return cls(text, "", re.compile(text, re.IGNORECASE))
        except (re.error, OverflowError) as error:
            return cls(text, str(error))

    def matches(self, name: str) -> bool:
        """Whether `name` is let through."""
        if self.pattern is not None:
            return self.pattern.search(name) is not None
        return self.text.casefold() in name.casefold()


@dataclass(slots=True)
class Trouble:
    """The first step at which each site had a value that is not finite; grows with the run."""

    steps: np.ndarray
    exact: np.ndarray
    seen: int = -1

    @classmethod
    def of(cls, sites: int) -> Trouble:
        """Nothing known yet; −1 is a site without trouble."""
        return cls(np.full(sites, -1, np.int64), np.ones(sites, bool))

    def update(self, reader: RunReader, events: Sequence[Event]) -> None:
        """Take in what has been recorded since the last look; the run's first alarm says where to begin."""
        began = next((event.step for event in events if event.kind == NONFINITE), None)
        if began is None:
            return
        start, end = max(self.seen + 1, began), reader.last_step + 1
        middle = min(end, began + EXACT_STEPS)
        if start < middle:
            self._read(reader, start, middle, middle - start, exact=True)
            start = middle
        for first, last in pieces(end - start, 256) if start < end else []:
            self._read(reader, start + first, start + last, 256, exact=last - first <= 256)
        self.seen = end - 1

    def _read(self, reader: RunReader, start: int, stop: int, columns: int, *, exact: bool) -> None:
        for metric in reader.metrics:
            window = reader.window(metric, start, stop, columns)
            if not window.nonfinite.any():
                continue
            rows = np.argmax(window.nonfinite, axis=0)
            steps = np.maximum(window.steps[rows], start)
            found = window.nonfinite.any(axis=0) & ((self.steps < 0) | (steps < self.steps))
            self.steps[found] = steps[found]
            self.exact[found] = exact


@dataclass(slots=True)
class SiteTable:
    """All sites of one lane at one step, filtered and sorted. `rows` are the sites' indices in order."""

    sites: tuple[Site, ...] = ()
    columns: tuple[str, ...] = ()
    step: int = -1
    longest: int = 0  # characters of the longest name
    filter: Filter = field(default_factory=Filter)
    sort: str = ""  # a column, NAME or LAYER; "" is the order of the model
    descending: bool = True
    rows: list[int] = field(default_factory=list)
    _values: dict[str, np.ndarray] = field(default_factory=dict)
    _bad: dict[str, np.ndarray] = field(default_factory=dict)
    _relative: np.ndarray = field(default_factory=lambda: np.empty(0))
    _frozen: frozenset[str] = frozenset()
    _trouble: Trouble = field(default_factory=lambda: Trouble.of(0))
    _series: RunSeries | None = None

    def update(self, lane: Lane, cursor: int | None) -> None:
        """Take the lane's values at `cursor`, or now."""
        series, view = lane.series, lane.view(cursor)
        if series is None or view is None:
            self.sites, self.rows, self._series = (), [], None
            return
        if series is not self._series:
            self._series, self.sites = series, series.sites
            self._trouble = Trouble.of(len(series.sites))
            self.columns = columns_of(series.metrics)
            self.longest = max(len(site.name) for site in series.sites)
            if self.sort not in ("", NAME, LAYER, *self.columns):
                self.sort = ""
        trouble = self._trouble
        lane.ask(lambda run: trouble.update(run.reader, run.recent.events))
        self.step = view.step
        self._values = dict(zip(series.metrics, view.snapshot.values, strict=True))
        self._bad = dict(zip(series.metrics, view.snapshot.nonfinite, strict=True))
        self._frozen = frozenset(texts_of(series.facts.get("frozen")))
        self._relative = self._measure(series, view)
        self.arrange()

    def _measure(self, series: RunSeries, view: StepView) -> np.ndarray:
        """Each site's gradient relative to the last one of its stack, [S]; NaN where that says nothing."""
        relative, snapshot = np.full(len(self.sites), np.nan), view.snapshot
        gauge = series.gauge
        for stream, layers in zip(gauge.streams, gauge.layers, strict=True):
            for row, members in ((gauge.stream_row, stream), (gauge.grad_row, layers)):
                if row is None or len(members) < 2:
                    continue
                values = snapshot.values[row, list(members)].astype(np.float64)
                with np.errstate(all="ignore"):
                    flowing = np.flatnonzero((values > 0) & np.isfinite(values))
                if flowing.size < 2:
                    continue
                here = np.array(members)[flowing]
                relative[here] = values[flowing] / values[flowing[-1]]
                break
        return relative

    def arrange(self) -> None:
        """Filter and sort again."""
        rows = np.array([i for i, site in enumerate(self.sites) if self.filter.matches(site.name)], np.int64)
        if self.sort and len(rows):
            rows = rows[self._sorted(rows)]
        elif self.descending is False:
            rows = rows[::-1]
        self.rows = rows.tolist()

    def _sorted(self, rows: np.ndarray) -> np.ndarray:
        """The order of `rows`: trouble always first, what is not there always last."""
        if self.sort == NAME:
            order = sorted(range(len(rows)), key=lambda i: self.sites[rows[i]].name, reverse=self.descending)
            return np.array(order, np.int64)
        if self.sort == LAYER:
            layers = [self.sites[row].layer for row in rows]
            keys = np.array([np.nan if layer is None else float(layer) for layer in layers])
            bad = np.zeros(len(rows), bool)
        else:
            keys = self._values[self.sort][rows].astype(np.float64)
            bad = self._bad[self.sort][rows]
        there = ~np.isnan(keys) & ~bad
        rank = np.where(bad, 0, np.where(there, 1, 2))
        value = np.where(there, -keys if self.descending else keys, 0.0)
        return np.lexsort((rows, value, rank))

    def cell(self, site: int, metric: str) -> tuple[str, bool]:
        """A value as text, empty where there is none, and whether it is trouble."""
        value, bad = float(self._values[metric][site]), bool(self._bad[metric][site])
        if bad:
            return ("∞" if np.isinf(value) else "NaN"), True
        return ("" if np.isnan(value) else format_number(value)), False

    def note(self, site: int, words: Words) -> tuple[str, str]:
        """What is remarkable about a site, and a state that gives it its colour."""
        bad = any(flags[site] for flags in self._bad.values())
        trouble, since = self._trouble, ""
        if 0 <= trouble.steps[site] <= self.step:
            key = ("since" if bad else "at") if trouble.exact[site] else "about"
            since = words(f"sites.nan_{key}", step=int(trouble.steps[site]))
        if bad:
            return since or words("sites.nan_now"), "nonfinite"
        now, state = self._state(site, words)
        if not since:
            return now, state
        return " · ".join(text for text in (since, now) if text), "nonfinite"

    def _state(self, site: int, words: Words) -> tuple[str, str]:
        """What is remarkable about a site whose values are finite, and the state of the flow that it is."""
        silence = self._silence(site)
        if silence:
            return words(f"sites.{silence}"), "silent"
        ratio = float(self._relative[site])
        for key, found in (
            ("vanished", ratio < VANISHED),
            ("fading", ratio < FADING),
            ("exploding", ratio > EXPLODED),
        ):
            if found:
                return words(f"sites.{key}", ratio=format_number(ratio)), key
        return "", ""

    def _silence(self, site: int) -> str:
        """Why a site has no gradient; empty where it has one, or where it has nothing that could have one."""
        if self.sites[site].name in self._frozen:
            return "frozen"
        if "grad_norm" in self._values:
            value = float(self._values["grad_norm"][site])
            if value == 0:
                return "zero"
            if not np.isnan(value) or self.sites[site].kind == "input":
                return ""
            weights = self._values.get(WEIGHTS)
            # A site without parameters of its own (dropout, an activation) has no gradient to miss.
            return "" if weights is not None and np.isnan(weights[site]) else "unreached"
        value = float(self._values["stream_grad"][site]) if "stream_grad" in self._values else np.nan
        return "zero" if value == 0 else ""
