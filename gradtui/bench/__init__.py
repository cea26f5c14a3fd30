"""`gradtui bench`: what gradtui costs, as ratios to a named baseline, interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Result:
    """One figure. `low` and `high` are the 10th and 90th percentile over its repetitions."""

    name: str
    baseline: str
    median: float
    low: float
    high: float
    budget: str
    unit: str = "×"

    def line(self) -> str:
        """As a line of the printed table."""
        figure = f"{self.median:8.3f} {self.unit:4} [{self.low:.3f}–{self.high:.3f}]"
        return f"{self.name:34} {figure:34} budget {self.budget:10} against {self.baseline}"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: `repeat` times the usual number of repetitions, or with `quick` the least that runs.

    The figures of a quick run say nothing; it shows that the benchmark works.
    """

    repeat: int = 1
    quick: bool = False

    def count(self, usual: int, least: int = 1) -> int:
        """How many repetitions to make where `usual` of them are the usual number."""
        return least if self.quick else usual * self.repeat


Bench = Callable[[Size], list[Result]]

# Imported when it is run: some load torch, some a terminal.
BENCHES: dict[str, str] = {
    "probe": "gradtui.bench.training:bench_probe",
    "lane": "gradtui.bench.training:bench_lane",
    "redraw": "gradtui.bench.drawing:bench_redraw",
    "start": "gradtui.bench.app:bench_start",
    "keys": "gradtui.bench.app:bench_keys",
    "beside": "gradtui.bench.app:bench_beside",
    "sites": "gradtui.bench.drawing:bench_sites",
    "scale": "gradtui.bench.files:bench_scale",
    "soak": "gradtui.bench.app:bench_soak",
}
# Run by name only: its repetitions are minutes.
LONG = frozenset({"soak"})


def load(name: str) -> Bench:
    """The benchmark called `name`, a key of BENCHES."""
    module, _, attribute = BENCHES[name].partition(":")
    found: Bench = getattr(import_module(module), attribute)
    return found


def summarise(name: str, baseline: str, values: list[float], budget: str, unit: str = "×") -> Result:
    """A Result from repeated measurements."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[round(share * (len(ordered) - 1))]

    return Result(name, baseline, at(0.5), at(0.1), at(0.9), budget, unit)
