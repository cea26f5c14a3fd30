"""Checks claims from beginning to end: plan, do what is missing, measure, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gradtui.presets import Preset
from gradtui.verify import VerifyError
from gradtui.verify.bounds import judge
from gradtui.verify.claims import Claim
from gradtui.verify.measure import claim_values
from gradtui.verify.plan import Plan, make_plan, weight
from gradtui.verify.report import Result
from gradtui.verify.runner import run_jobs
from gradtui.verify.store import Store


def check(
    claims: Sequence[Claim],
    presets: Mapping[str, Preset],
    *,
    seeds: Sequence[int],
    jobs: int,
    directory: Path,
    log: Path,
    on_begin: Callable[[int], None] = lambda _whole: None,
    on_progress: Callable[[int], None] = lambda _more: None,
) -> list[Result]:
    """The results of `claims`, in their order; what `directory` holds from before is not done again.

    `on_begin` is told how much there is to do, `on_progress` how much more of it is done. Raises VerifyError
    where nothing can be run at all, OSError where `directory` cannot be written.
    """
    store = Store(directory)
    store.prune()
    plan = make_plan(claims, presets, seeds, store)
    on_begin(sum(weight(job) for job in plan.jobs.values()))
    failed = run_jobs(plan.jobs, at_once=jobs, store=store, log=log, on_progress=on_progress) if plan.jobs else {}
    return [_result(claim, plan, failed, store) for claim in claims]


def _result(claim: Claim, plan: Plan, failed: Mapping[str, str], store: Store) -> Result:
    if claim.id in plan.skipped:
        return Result(claim, plan.seeds, problem=plan.skipped[claim.id])
    keys = plan.keys[claim.id]
    problem = next((failed[key] for key in keys if key in failed), "")
    if problem:
        return Result(claim, plan.seeds, problem=problem)
    try:
        values = claim_values(claim, keys, store)
    except VerifyError as error:
        return Result(claim, plan.seeds, problem=str(error))
    return Result(claim, plan.seeds, tuple(values), judge(claim.limits, values, caveat=claim.caveat))
