"""Checks claims from beginning to end: plan, do what is missing, measure, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradtui.presets import Preset
from gradtui.verify import VerifyError
from gradtui.verify.claims import Claim
from gradtui.verify.judge import claim_values, judge
from gradtui.verify.plan import Plan, make_plan
from gradtui.verify.report import Result
from gradtui.verify.run import run_jobs
from gradtui.verify.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How claims are checked: with which seeds, and in how many processes at once.

    `directory` keeps what was measured, from one call to the next; `log` takes what the processes print.
    """

    seeds: Sequence[int]
    at_once: int
    directory: Path
    log: Path


def check(
    claims: Sequence[Claim],
    presets: Mapping[str, Preset],
    setup: Setup,
    on_progress: Callable[[int, int], None] = lambda _done, _whole: None,
) -> list[Result]:
    """The results of `claims`, in their order; what `setup.directory` holds from before is not done again.

    `on_progress` is called with how much is done and how much there is to do, first with a 0. Raises VerifyError
    where nothing can be run at all, OSError where the directory cannot be written.
    """
    store = Store(setup.directory)
    store.prune()
    plan = make_plan(claims, presets, setup.seeds, store)
    done, whole = 0, sum(job.weight for job in plan.jobs.values())

    def more(share: int) -> None:
        nonlocal done
        done += share
        on_progress(done, whole)

    more(0)
    failed = {}
    if plan.jobs:
        failed = run_jobs(plan.jobs, at_once=setup.at_once, store=store, log=setup.log, on_progress=more)
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
