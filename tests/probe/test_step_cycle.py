"""The order of measurements within a step, for one optimizer, several, or none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.step_cycle import Action, Completed, StepCycle

READ, CLIPPED = Action.READ_GRADIENTS, Action.READ_CLIPPED
KEEP, UPDATE, NOTHING = Action.KEEP_WEIGHTS, Action.MEASURE_UPDATE, Action.NOTHING


def cycle_of(optimizers: int, *, every: int = 1, samples_updates: bool = False) -> StepCycle:
    cycle = StepCycle(every=every, samples_updates=samples_updates)
    cycle.optimizers = optimizers
    return cycle


def take(cycle: StepCycle, optimizer: int = 0) -> tuple[Action, Action, Completed | None]:
    """One step of an optimizer."""
    return cycle.before(optimizer), cycle.after(optimizer), cycle.stepped(optimizer)


def test_a_step_reads_gradients_before_and_the_update_after() -> None:
    cycle = cycle_of(1)
    for step in range(3):
        assert take(cycle) == (READ | KEEP, UPDATE, Completed(step, is_measured=True))


def test_with_clipping_gradients_are_read_before_it_and_once_more_before_the_step() -> None:
    cycle = cycle_of(1)
    assert cycle.clipping(0) == READ
    assert cycle.clipping(0) == NOTHING  # clipped twice: what counts is before the first and after the last
    assert cycle.before(0) == CLIPPED | KEEP
    assert cycle.after(0) == UPDATE


def test_a_closure_runs_the_backward_pass_within_the_step() -> None:
    cycle = cycle_of(1)
    assert cycle.before(0, has_closure=True) == KEEP
    assert cycle.after(0) == READ | UPDATE
    cycle.stepped(0)
    assert cycle.before(0, has_closure=True) == KEEP
    assert cycle.clipping(0) == READ  # in the closure
    assert cycle.after(0) == CLIPPED | UPDATE


def test_a_loop_without_an_optimizer_is_as_if_there_were_one() -> None:
    cycle = cycle_of(0)
    assert cycle.before(0) == READ | KEEP
    assert cycle.stepped(0) == Completed(0, is_measured=True)


def test_a_step_is_complete_once_each_optimizer_has_stepped() -> None:
    cycle = cycle_of(2)
    assert take(cycle, 1)[2] is None
    assert cycle.step == 0
    assert take(cycle, 0)[2] == Completed(0, is_measured=True)
    assert cycle.step == 1


def test_of_several_steps_of_one_optimizer_the_first_is_measured() -> None:
    cycle = cycle_of(2)
    assert take(cycle, 0) == (READ | KEEP, UPDATE, None)
    assert cycle.clipping(0) == NOTHING
    assert take(cycle, 0) == (NOTHING, NOTHING, None)
    assert take(cycle, 1) == (READ | KEEP, UPDATE, Completed(0, is_measured=True))


def test_a_step_that_all_optimizers_were_left_out_of_does_not_count() -> None:
    cycle = cycle_of(2)
    cycle.clipping(0)
    assert cycle.skipped(0) is None
    assert cycle.skipped(1) == Completed(0, is_measured=True, is_taken=False)
    assert cycle.step == 0
    assert take(cycle, 0)[0] == READ | KEEP


def test_a_step_that_one_of_two_optimizers_was_left_out_of_counts() -> None:
    cycle = cycle_of(2)
    cycle.skipped(0)
    assert take(cycle, 1)[2] == Completed(0, is_measured=True)
    take(cycle, 0)
    assert cycle.skipped(0) is None  # it has stepped after all
    assert cycle.skipped(1) == Completed(1, is_measured=True)


def test_every_kth_step_is_measured_and_its_updates_at_sampled_steps() -> None:
    cycle = cycle_of(1, every=2, samples_updates=True)
    found = [take(cycle) for _ in range(64)]
    assert [step for step, (before, _, _) in enumerate(found) if READ in before] == list(range(0, 64, 2))
    updates = [step for step, (before, after, _) in enumerate(found) if KEEP in before and UPDATE in after]
    assert updates == [0, 2, 4, 6, 8, 20, 40, 60]
    assert [done.is_measured for _, _, done in found if done] == [step % 2 == 0 for step in range(64)]


def test_restart_forgets_what_has_happened_within_the_step() -> None:
    cycle = cycle_of(2)
    take(cycle, 0)
    assert cycle.has_read_gradients
    cycle.restart()
    assert not cycle.has_read_gradients
    assert take(cycle, 0) == (READ | KEEP, UPDATE, None)


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["clip", "step", "closure", "skip"])), max_size=40),
)
def test_whatever_happens_each_optimizer_is_read_at_most_once_a_step(
    optimizers: int, happenings: list[tuple[int, str]]
) -> None:
    cycle = cycle_of(optimizers)
    reads, updates, seen, steps = [0] * 3, [0] * 3, set[int](), 0
    for optimizer, what in happenings:
        if optimizer >= optimizers:
            continue
        if what == "clip":
            actions, done = [cycle.clipping(optimizer)], None
        elif what == "skip":
            actions, done = [], cycle.skipped(optimizer)
            seen.add(optimizer)
        else:
            actions = [cycle.before(optimizer, has_closure=what == "closure"), cycle.after(optimizer)]
            done = cycle.stepped(optimizer)
            seen.add(optimizer)
        reads[optimizer] += sum(READ in action for action in actions)
        updates[optimizer] += sum(UPDATE in action for action in actions)
        # A clipped norm is never read before the one that it is compared with.
        assert all(CLIPPED not in action or reads[optimizer] for action in actions)
        assert max(*reads, *updates) <= 1
        assert (done is not None) == (len(seen) == optimizers)
        if done is not None:
            steps += done.is_taken
            reads, updates, seen = [0] * 3, [0] * 3, set[int]()
        assert cycle.step == steps
