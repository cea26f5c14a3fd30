"""From claims to jobs: each training once, however many claims look at it. Pure but for what the store knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gradtui.analysis.quantities import QUANTITIES
from gradtui.metrics import MEASURED, METRICS
from gradtui.presets import Preset, PresetError, parse_preset
from gradtui.verify.claims import Claim
from gradtui.verify.jobs import Bench, Check, Job, Train
from gradtui.verify.store import Store, benchmark_key, invariant_key, run_key

# How many training steps' worth an invariant or a benchmark is, for the order of jobs and the progress bar.
CHECK_STEPS, BENCH_STEPS = 10, 60
RECORDED = frozenset(
    name for name in MEASURED if METRICS[name].recorded in ("always", "zoo")
)  # by every run of a preset


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
    stops = _stops(usable)
    for claim, used in usable:
        keys = plan.keys.setdefault(claim.id, [])
        for seed in plan.seeds:
            for key, job in _jobs_of(claim, used, seed, stops, store):
                keys.append(key)
                done = store.has_run(key, job.steps) if isinstance(job, Train) else store.value(key) is not None
                if key not in plan.jobs and not done:
                    plan.jobs[key] = job
    # The longest first, so that no core is left with a long one at the end.
    plan.jobs = dict(sorted(plan.jobs.items(), key=lambda item: -weight(item[1])))
    return plan


def weight(job: Job) -> int:
    """How long a job takes, in steps of one layer."""
    if isinstance(job, Train):
        return job.steps * job.preset.model.layers
    return 12 * (CHECK_STEPS if isinstance(job, Check) else BENCH_STEPS)


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
    for sample in measure.samples:
        for metric in QUANTITIES[sample.quantity].metrics:
            if metric not in RECORDED:
                raise _Unusable(f"there is no metric {metric} to be recorded")
    return used


def _identity(preset: Preset) -> bytes:
    return msgspec.json.encode(preset)


def _stops(usable: Sequence[tuple[Claim, list[Preset]]]) -> dict[bytes, tuple[int, set[int]]]:
    """For each preset: how many steps its plain samples need, and where it is evaluated."""
    stops: dict[bytes, tuple[int, set[int]]] = {}
    for claim, used in usable:
        for sample, preset in zip(claim.measure.samples, used, strict=False):
            plain, evaluated = stops.get(_identity(preset), (0, set()))
            if QUANTITIES[sample.quantity].fact:
                evaluated = {*evaluated, sample.stop}
            else:
                plain = max(plain, sample.stop)
            stops[_identity(preset)] = (plain, evaluated)
    return stops


def _jobs_of(
    claim: Claim,
    used: Sequence[Preset],
    seed: int,
    stops: Mapping[bytes, tuple[int, set[int]]],
    store: Store,
) -> list[tuple[str, Job]]:
    measure = claim.measure
    if measure.kind == "invariant":
        preset = used[0] if used else None
        return [(invariant_key(measure.name, preset, seed), Check(measure.name, preset, seed))]
    if measure.kind == "benchmark":
        key = benchmark_key(measure.name, measure.mode, measure.passed, seed)
        return [(key, Bench(measure.name, measure.mode, measure.passed, seed))]
    jobs: list[tuple[str, Job]] = []
    for sample, preset in zip(measure.samples, used, strict=True):
        plain, evaluated = stops[_identity(preset)]
        if QUANTITIES[sample.quantity].fact:
            at: int | None = sample.stop
        else:
            # A run that is evaluated at its end is as good, if it is long enough for all that look at it.
            at = min((stop for stop in evaluated if stop >= plain), default=None)
        key = run_key(preset, seed, at)
        steps = plain if at is None else at
        jobs.append((key, Train(preset, seed, steps, at is not None, str(store.run(key)))))
    return jobs
