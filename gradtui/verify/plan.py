"""From claims to jobs: each training once, however many claims need it. Pure but for what the store holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gradtui.analysis.quantities import QUANTITIES
from gradtui.presets import Preset, PresetError, parse_preset
from gradtui.verify.claims import Claim, Sample
from gradtui.verify.jobs import BenchmarkJob, InvariantJob, Job, TrainingJob
from gradtui.verify.store import Store, benchmark_key, invariant_key, run_key


@dataclass(slots=True)
class Plan:
    """`jobs` that are to be done, by key; for each claim's id the `keys` it needs, or why it is `skipped`.

    The keys of a claim are in the order of seeds, and for each seed in the order of its samples.
    """

    seeds: tuple[int, ...]
    jobs: dict[str, Job] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


class _Unusable(Exception):
    """Why a claim cannot be checked here."""


def make_plan(claims: Sequence[Claim], presets: Mapping[str, Preset], seeds: Sequence[int], store: Store) -> Plan:
    """What has to be done to check `claims`; what the store holds is not done again."""
    plan = Plan(tuple(seeds))
    usable: list[tuple[Claim, list[Preset]]] = []
    for claim in claims:
        try:
            usable.append((claim, _presets_of(claim, presets)))
        except _Unusable as why:
            plan.skipped[claim.id] = str(why)
    lengths = _lengths(usable)
    for claim, used in usable:
        keys = plan.keys.setdefault(claim.id, [])
        for seed in plan.seeds:
            for key, job in _jobs_of(claim, used, seed, lengths, store):
                keys.append(key)
                if key not in plan.jobs and not _is_done(key, job, store):
                    plan.jobs[key] = job
    # The longest first, so that no core is left with a long one at the end.
    plan.jobs = dict(sorted(plan.jobs.items(), key=lambda item: -item[1].weight))
    return plan


def _is_done(key: str, job: Job, store: Store) -> bool:
    return store.has_run(key, job.steps) if isinstance(job, TrainingJob) else store.value(key) is not None


def changed(preset: Preset, change: Mapping[str, Any], claim: str) -> Preset:
    """`preset` with some of its settings replaced; raises PresetError."""
    if not change:
        return preset
    table: dict[str, Any] = msgspec.to_builtins(preset)
    del table["id"]
    return parse_preset(_merged(table, change), id=preset.id, source=f"claim {claim}: change of {preset.id}")


def _merged(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in change.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _presets_of(claim: Claim, presets: Mapping[str, Preset]) -> list[Preset]:
    """The preset of each sample, or of the invariant."""
    measure = claim.measure
    wanted = [(sample.preset, sample.change) for sample in measure.samples]
    if measure.preset:
        wanted.append((measure.preset, measure.change))
    used = []
    for name, change in wanted:
        if name not in presets:
            raise _Unusable(f"there is no preset {name}")
        try:
            used.append(changed(presets[name], change, claim.id))
        except PresetError as error:
            raise _Unusable(str(error)) from error
    return used


@dataclass(slots=True)
class _Length:
    """How many steps of a preset's runs are needed.

    `plain` is what the longest series needs; `evaluated` are the steps after which facts are measured, each of
    which ends a run.
    """

    plain: int = 0
    evaluated: set[int] = field(default_factory=set)

    def end_of(self, sample: Sample) -> int | None:
        """The step after which the run that `sample` is taken from is evaluated; None where it is not."""
        if QUANTITIES[sample.quantity].is_fact:
            return sample.stop
        # A run that is evaluated is as good as a plain one, if it is long enough for all series.
        return min((stop for stop in self.evaluated if stop >= self.plain), default=None)


def _lengths(usable: Sequence[tuple[Claim, list[Preset]]]) -> dict[bytes, _Length]:
    """What the claims need of each preset, by `_identity`."""
    lengths: dict[bytes, _Length] = {}
    for claim, used in usable:
        for sample, preset in zip(claim.measure.samples, used, strict=False):
            length = lengths.setdefault(_identity(preset), _Length())
            if QUANTITIES[sample.quantity].is_fact:
                length.evaluated.add(sample.stop)
            else:
                length.plain = max(length.plain, sample.stop)
    return lengths


def _identity(preset: Preset) -> bytes:
    return msgspec.json.encode(preset)


def _jobs_of(
    claim: Claim, used: Sequence[Preset], seed: int, lengths: Mapping[bytes, _Length], store: Store
) -> list[tuple[str, Job]]:
    """The jobs that `claim` needs with one seed, by key; `used` are its presets, one a sample."""
    measure = claim.measure
    if measure.kind == "invariant":
        [preset] = used
        return [(invariant_key(measure.name, preset, seed), InvariantJob(measure.name, preset, seed))]
    if measure.kind == "benchmark":
        key = benchmark_key(measure.name, measure.mode, measure.passed, seed)
        return [(key, BenchmarkJob(measure.name, measure.mode, measure.passed, seed))]
    jobs: list[tuple[str, Job]] = []
    for sample, preset in zip(measure.samples, used, strict=True):
        length = lengths[_identity(preset)]
        end = length.end_of(sample)
        key = run_key(preset, seed, end)
        steps = length.plain if end is None else end
        jobs.append((key, TrainingJob(preset, seed, steps, end is not None, store.run(key))))
    return jobs
