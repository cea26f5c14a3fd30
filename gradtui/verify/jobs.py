"""What a worker process is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradtui.presets import Preset

# How many training steps an invariant or a benchmark takes as long as, for the order of jobs and the progress bar.
INVARIANT_STEPS, BENCHMARK_STEPS = 10, 60
LAYERS = 12  # of the model that those steps are of


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Train `preset` with `seed` for `steps` steps and record the run file `out`; its answer has no value.

    With `evaluate` the run's facts also hold what `worker.evaluate` measures at its end.
    """

    preset: Preset
    seed: int
    steps: int
    evaluate: bool
    out: Path

    @property
    def weight(self) -> int:
        """How long it takes, in training steps of one layer."""
        return self.steps * self.preset.model.layers


@dataclass(frozen=True, slots=True)
class InvariantJob:
    """Compute the invariant `name`, a key of `claims.INVARIANTS`, of a model of `preset` with `seed`."""

    name: str
    preset: Preset
    seed: int

    @property
    def weight(self) -> int:
        """How long it takes, in training steps of one layer."""
        return INVARIANT_STEPS * LAYERS


@dataclass(frozen=True, slots=True)
class BenchmarkJob:
    """Measure the benchmark `name`, a key of `claims.BENCHMARKS`, with no other job beside it.

    `mode` is one of `claims.MODES`, `passed` one of `claims.PASSES`.
    """

    name: str
    mode: str
    passed: str
    seed: int

    @property
    def weight(self) -> int:
        """How long it takes, in training steps of one layer."""
        return BENCHMARK_STEPS * LAYERS


Job = TrainingJob | InvariantJob | BenchmarkJob


@dataclass(frozen=True, slots=True)
class Progress:
    """`steps` steps of the job are done; it goes on."""

    steps: int


@dataclass(frozen=True, slots=True)
class Done:
    """The job is done. `value` is None for a training, and for a number that is not finite."""

    value: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job could not be done; `reason` is a sentence without a full stop."""

    reason: str


Answer = Progress | Done | Failed
