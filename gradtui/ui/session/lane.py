"""A lane of the lab: a preset that an engine trains, or a run file that is only looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gradtui.analysis.series import RunSeries, StepView
from gradtui.analysis.shapes import Curve, Reading, Recent
from gradtui.engine.protocol import LaneState
from gradtui.i18n import LANGUAGES, catalogue
from gradtui.metrics import METRICS, Metric
from gradtui.presets import Preset, unflatten
from gradtui.runs import RunError
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Site

State = LaneState | str  # what the engine says, or the status that a run file has

T = TypeVar("T")

# Okabe and Ito's colours, which stay apart for every kind of colour vision; the marks do so without colour.
COLORS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#8c9eff", "#b0b0b0")
# Eleven marks to eight colours: eighty-eight lanes before a pair comes again.
MARKS = ("●", "▲", "■", "◆", "▼", "★", "○", "△", "□", "◇", "▽")


@dataclass(slots=True)
class Lane:
    """One row of the list. `color` and `mark` are its own on every chart, focused or pinned.

    `recorded` is a run file that is only looked at: nothing can be started or stopped. `series` is there as soon
    as the run file `run` is; `reason` says why a lane does not train where that is not by command.
    """

    id: str
    title: str
    color: str
    mark: str
    preset: Preset | None = None
    state: State = "idle"
    reason: str = ""
    seed: int = 0
    lr_scale: float = 1.0
    run: Path | None = None
    series: RunSeries | None = None
    recorded: bool = False

    @classmethod
    def of_preset(cls, preset: Preset, number: int) -> Lane:
        """An idle lane; `number` gives it its colour and mark."""
        return cls(preset.id, preset.id, *look(number), preset, seed=preset.training.seed)

    @classmethod
    def of_file(cls, file: Path, number: int) -> Lane:
        """A recorded run; raises RunError if `file` is none."""
        series = RunSeries(RunReader(file))
        facts, seed = series.facts, series.facts.get("seed")
        name = str(facts.get("name") or file.stem)
        lane = cls(f"file:{file.absolute()}", name if seed is None else f"{name} s{seed}", *look(number))
        lane.preset, lane.run, lane.series, lane.recorded = _preset_of(series), file.absolute(), series, True
        lane.state, lane.reason = series.reader.status, str(facts.get("reason", ""))
        lane.seed = seed if isinstance(seed, int) else 0
        return lane

    def name(self, language: str) -> str:
        """What to call it on screen."""
        return self.title if self.preset is None or self.recorded else self.preset.name(language)

    @property
    def group(self) -> str:
        """The group that its preset is listed under; "" for a recorded run."""
        return self.preset.group if self.preset is not None and not self.recorded else ""

    def matches(self, text: str) -> bool:
        """Whether its id, or the name of it or of its group in any language, holds `text` in either case."""
        groups = [catalogue(language)[f"group.{self.group}"] for language in LANGUAGES] if self.group else []
        names = (self.id, *(self.name(language) for language in LANGUAGES), self.group, *groups)
        return any(text.casefold() in name.casefold() for name in names)

    @property
    def facts(self) -> dict[str, Any]:
        """What the run file says about its run; {} before there is one."""
        return self.series.facts if self.series else {}

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of the run; () before there is one."""
        return self.series.sites if self.series else ()

    @property
    def recent(self) -> Recent:
        """The newest numbers of the run."""
        return self.series.recent if self.series else Recent()

    @property
    def last_step(self) -> int:
        """The last recorded step, -1 before the first."""
        return self.series.last_step if self.series else -1

    @property
    def steps(self) -> int:
        """How many steps it is to take, 0 where that is not known."""
        steps = self.facts.get("steps")
        if isinstance(steps, int):
            return steps
        return self.preset.training.steps if self.preset else 0

    @property
    def in_trouble(self) -> bool:
        """It does not train, and not by command."""
        return bool(self.reason) or self.state == "diverged" or (self.recorded and self.state == "died")

    def has(self, metric: str) -> bool:
        """Whether its run has `metric`; one that has not begun may have all but readings."""
        if self.series is None:
            return not METRICS[metric].is_reading
        return bool(self.ask(lambda run: run.has(metric)))

    def ask(self, question: Callable[[RunSeries], T]) -> T | None:
        """The answer of this lane's run, or None before there is one.

        A run file that turns out to be damaged is given up: that is the lane's state from then on.
        """
        if self.series is None:
            return None
        try:
            return question(self.series)
        except RunError as error:
            self.give_up(str(error))
            return None

    def view(self, step: int | None) -> StepView | None:
        """The run at `step`, or now where that is None; None before the first step."""
        return self.ask(lambda run: run.at(step))

    def curve(self, metric: str, step: int | None) -> Curve | None:
        """`metric` over depth at `step`, or now; None where the run has not measured it."""

        def of(run: RunSeries) -> Curve | None:
            view = run.at(step)
            return None if view is None else view.curve(metric)

        return self.ask(of)

    def reading(self, metric: Metric, step: int | None) -> Reading | None:
        """The first reading that `metric` is made of, at `step` or now; only weights may differ in length."""
        return self.ask(lambda run: run.reading(metric.needs[0], step, alike=metric.kind != "weights"))

    def begin(self, run: Path, seed: int) -> None:
        """Forget the earlier run; `run` is the file that the new one will write."""
        self.close()
        self.run, self.seed, self.state, self.reason, self.lr_scale = run, seed, "starting", "", 1.0

    def give_up(self, reason: str) -> None:
        """Stop reading the run file; the process that writes it may go on."""
        self.close()
        self.run, self.state, self.reason = None, "died", reason

    def poll(self) -> bool:
        """Look for news in the run file; True if there is any. A file that is not there yet is no news."""
        if self.run is None:
            return False
        if self.series is not None:
            news = bool(self.ask(lambda run: run.refresh()))
            return self._follow_status() or news
        if not self.run.exists():
            return False
        try:
            self.series = RunSeries(RunReader(self.run))
        except RunError as error:
            self.give_up(str(error))
        return True

    def _follow_status(self) -> bool:
        """Of a recorded run the file says how it stands; True if that has changed."""
        if not self.recorded or self.series is None or self.state == self.series.reader.status:
            return False
        self.state, self.reason = self.series.reader.status, str(self.facts.get("reason", ""))
        return True

    def close(self) -> None:
        """Close the run file."""
        if self.series:
            self.series.close()
        self.series = None


def look(number: int) -> tuple[str, str]:
    """Colour and mark of lane `number`, from 0; the first 88 pairs differ."""
    return COLORS[number % len(COLORS)], MARKS[number % len(MARKS)]


def _preset_of(series: RunSeries) -> Preset | None:
    """The preset that a run was made from, for its topology and title; None for a run of a script."""
    recorded = series.facts.get("preset")
    try:
        return unflatten(recorded) if recorded else None
    except msgspec.ValidationError:
        return None
