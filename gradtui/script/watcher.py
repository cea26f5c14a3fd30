"""Finds what a script trains, and puts a probe on it, without a word from the script.

An optimizer is noticed when it is made. From then on, until its model is known, the next module that is called to
be trained and holds parameters of it is the model: the probe is there before its first forward pass. Where nothing
of that kind is called (the optimizer's parameters are used by other ways), the model is looked for at the first
step. While nothing is looked for, all that is left is one call per optimizer step.

None of this is ever on the stack while the script's own code runs: a traceback shows the script and torch, nothing
of ours. Whatever goes wrong here ends here.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from gradtui.script.ending import Ending, in_words
from gradtui.script.losses import Losses
from gradtui.script.models import identities, model_of, name_of, parameters_of
from gradtui.script.plan import MOST_MODELS, Plan, run_path

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe

# So many steps of one optimizer without any of the other that its model is trained with: that one is not used.
MOST_ALONE = 8
# So many steps while one more model is expected: it is not trained; should it be, its optimizer's step will tell.
MOST_ARMED = 32
# So many steps of others without any of its own: the script is done with a model, and gets its memory back.
MOST_IDLE = 200


class _Known:
    """An optimizer of the script's; `watched` is the model that it trains, once that is known."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.ref = weakref.ref(optimizer)
        self.watched: _Watched | None = None
        self.steps = 0
        self.alone = 0  # steps since the last of those optimizers that train the same model
        self.hopeless = False  # its parameters belong to no model
        self.rival = False  # another optimizer trains the same parameters


class _Watched:
    """A model with a probe on it."""

    def __init__(self, number: int, model: nn.Module, optimizers: list[_Known]) -> None:
        self.number, self.model, self.optimizers = number, model, optimizers
        self.probe: Probe
        self.probe_is_told = False  # of this step's loss
        self.after: RemovableHandle | None = None
        self.rivals: list[_Known] = []
        self.idle = 0

    @property
    def measured(self) -> bool:
        """Every optimizer has stepped: there is something in the run file."""
        return all(known.steps for known in self.optimizers)


class Watcher:
    """Watches the process it is made in. `say` is told what the user should know."""

    def __init__(self, plan: Plan, ending: Ending, say: Callable[[str], None]) -> None:
        self._plan, self._ending, self._say = plan, ending, say
        self._known: dict[int, _Known] = {}
        self._watched: list[_Watched] = []
        self._number = 0
        self._off = False
        self._trouble = ""
        self._stepped = False
        self._losses = Losses(self._fail)
        self._armed: RemovableHandle | None = None
        self._strangers: set[int] = set()
        self._armed_for = 0  # steps
        notice = Optimizer._patch_step_function  # every way to make an optimizer leads through it: also unpickling

        def _patch_step_function(optimizer: Optimizer) -> None:
            notice(optimizer)
            self._guarded(self._on_optimizer, optimizer)

        Optimizer._patch_step_function = _patch_step_function  # type: ignore[assignment, method-assign]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._turn_off)

    def why_nothing(self) -> str:
        """Why there is no run file, in half a sentence."""
        if self._trouble:
            return self._trouble
        if not self._known:
            return "no optimizer of torch was made"
        if not self._stepped:
            return "no optimizer step of torch was seen (one inside torch.compile cannot be)"
        return "the training was over before a step could be measured"

    def close(self, status: str, reason: str) -> None:
        """The script has come to its end."""
        self._turn_off()
        for watched in self._watched:
            self._close(watched, status, reason)
        self._watched = []

    # --- what the script does

    def _on_optimizer(self, optimizer: Optimizer) -> None:
        if not self._known:
            register_optimizer_step_pre_hook(self._before_step)
            self._losses.listen()
        for key in [key for key, known in self._known.items() if known.ref() is None]:
            del self._known[key]
        self._known[id(optimizer)] = _Known(optimizer)
        self._arm()

    def _before_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        # A step that is compiled as a whole must not be broken in two: it is not seen.
        if not torch.compiler.is_compiling():
            self._guarded(self._on_step, optimizer)

    def _after_step(self, watched: _Watched) -> None:
        # What is heard during a step comes from the optimizer's closure.
        if not torch.compiler.is_compiling() and not watched.probe_is_told:
            self._guarded(self._tell_first, watched)

    def _tell_first(self, watched: _Watched) -> None:
        loss = self._losses.take(watched.number, first=True)
        if loss is not None:
            watched.probe.log(loss=loss)

    def _on_forward(self, module: nn.Module) -> None:
        if id(module) in self._strangers:
            return
        if any(is_lazy(p) for p in module.parameters()):
            return  # it will know its parameters after this pass
        inside = identities(module.parameters())
        newest = [known for known in reversed(self._known.values()) if self._is_open(known)]
        for known in newest:
            optimizer = known.ref()
            if known.watched is None and optimizer is not None:
                wanted = parameters_of(optimizer)
                if inside & identities(wanted) and not self._is_watched(wanted):
                    self._attach(known, model_of(wanted, self._foreign(wanted), called=module))
        self._strangers.add(id(module))
        if not any(self._is_open(known) and not self._is_watched(_wanted(known)) for known in newest):
            self._disarm()

    def _on_step(self, optimizer: Optimizer) -> None:
        self._stepped = True
        self._ending.exit_code = None  # whatever has called sys.exit, the script goes on
        known = self._known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            known = self._known[id(optimizer)] = _Known(optimizer)
        watched = known.watched
        if watched is None:
            known.alone += 1
            if known.hopeless or (known.rival and known.alone < MOST_ALONE):
                return
            self._find(known)
            watched = known.watched
            if watched is None:
                return
        known.steps += 1
        watched.idle = 0
        for rival in watched.rivals:
            rival.alone = 0
        if known.steps == MOST_ALONE and not watched.measured:
            self._leave_out(watched)
            watched = known.watched
            assert watched is not None
        if known is watched.optimizers[0]:
            loss = self._losses.take(watched.number)
            watched.probe_is_told = loss is not None
            if loss is not None:
                watched.probe.log(loss=loss)
        if len(self._watched) > 1:
            self._tidy(watched)
        if self._armed is not None:
            self._armed_for += 1
            if self._armed_for >= MOST_ARMED:
                self._disarm()

    # --- finding and attaching

    def _is_open(self, known: _Known) -> bool:
        return known.watched is None and not (known.hopeless or known.rival) and bool(_wanted(known))

    def _is_watched(self, wanted: Iterable[torch.Tensor]) -> bool:
        ids = identities(wanted)
        return any(ids & identities(watched.model.parameters()) for watched in self._watched)

    def _foreign(self, wanted: Iterable[torch.Tensor]) -> set[int]:
        """The parameters of other optimizers."""
        return identities(p for known in self._known.values() for p in _wanted(known)) - identities(wanted)

    def _find(self, known: _Known) -> None:
        """An optimizer steps whose model is not known."""
        wanted = _wanted(known)
        ids = identities(wanted)
        for watched in self._watched:
            if ids & identities(watched.model.parameters()):
                self._replace(watched, known)
                return
        self._attach(known, model_of(wanted, self._foreign(wanted)))

    def _partners(self, known: _Known, model: nn.Module) -> list[_Known]:
        """`known` and the other optimizers of the same model, none of which trains what another does."""
        inside, taken, chosen = identities(model.parameters()), identities(_wanted(known)), [known]
        for other in reversed(self._known.values()):
            ids = identities(_wanted(other))
            if other is not known and not (other.hopeless or other.rival) and ids & inside and not ids & taken:
                taken |= ids
                chosen.append(other)
        return chosen

    def _attach(self, known: _Known, model: nn.Module | None) -> None:
        if model is None:
            known.hopeless = True
            self._trouble = "the optimizer's parameters belong to no torch.nn.Module"
            return
        self._tidy(None)
        if self._number >= MOST_MODELS:
            known.hopeless = True
            if self._number == MOST_MODELS:
                self._number += 1
                self._say(f"the script trains more than {MOST_MODELS} models; the others are not recorded")
            return
        self._number += 1
        self._watch(self._number, model, self._partners(known, model))

    def _watch(self, number: int, model: nn.Module, optimizers: list[_Known]) -> None:
        from gradtui.probe.probe import Probe

        plan = self._plan
        watched = _Watched(number, model, optimizers)
        first = optimizers[0].ref()
        if first is not None:  # before the probe's own, so that it hears the loss of the step that ends here
            watched.after = first.register_step_post_hook(lambda *_: self._after_step(watched))
        facts = {"script": plan.line} | ({"output": plan.output} if plan.output else {})
        name = plan.name if number == 1 else f"{plan.name} {name_of(model) or type(model).__name__}"
        watched.probe = Probe(
            model,
            [optimizer for known in optimizers if (optimizer := known.ref()) is not None],
            run=run_path(Path(plan.run), number),
            layers=plan.layers,
            metrics=plan.metrics,
            every=plan.every,
            name=name,
            keep=plan.keep,
            facts=facts,
            log_first=True,
            until_exit=False,  # the end is seen here, and more of it
        )
        if not self._watched and number == 1:
            self._ending.watch_for_death()
        for one in optimizers:
            one.watched = watched
        self._watched.append(watched)
        self._losses.watch(number, [p for known in optimizers for p in _wanted(known)])

    def _replace(self, watched: _Watched, known: _Known) -> None:
        """Another optimizer takes over a model: in a run of its own, if there is something in the first."""
        known.rival = False
        for old in watched.optimizers:
            # Should these take turns, one of them is recorded: a rival needs a while to take over in its turn.
            old.rival = bool(identities(_wanted(old)) & identities(_wanted(known)))
            old.watched, old.alone = None, 0
        rivals = [one for one in (*watched.optimizers, *watched.rivals) if one.rival]
        self._drop(watched, hand_on=True, unmade=not watched.measured)
        if watched.measured:
            self._attach(known, watched.model)
        else:
            self._watch(watched.number, watched.model, self._partners(known, watched.model))
        if known.watched is not None:
            known.watched.rivals = rivals

    def _leave_out(self, watched: _Watched) -> None:
        """Of the optimizers that train a model, some never step: go on without them."""
        used = [known for known in watched.optimizers if known.steps]
        for known in watched.optimizers:
            known.watched, known.hopeless = None, not known.steps
        self._drop(watched, hand_on=True, unmade=True)
        self._watch(watched.number, watched.model, used)

    def _tidy(self, stepping: _Watched | None) -> None:
        """Close the runs of models that the script has let go, or trains no more, so that they can be freed."""
        for watched in list(self._watched):
            if watched is stepping:
                continue
            watched.idle += stepping is not None
            if watched.idle >= MOST_IDLE or all(map(_is_let_go, watched.optimizers)):
                for known in watched.optimizers:
                    known.watched = None
                self._drop(watched)

    def _drop(self, watched: _Watched, *, hand_on: bool = False, unmade: bool = False) -> None:
        self._watched.remove(watched)
        if watched.after is not None:
            watched.after.remove()
        self._losses.forget(watched.number, hand_on=hand_on)
        self._close(watched, "done", "")
        if unmade:
            watched.probe.path.unlink(missing_ok=True)

    def _close(self, watched: _Watched, status: str, reason: str) -> None:
        try:
            watched.probe.close(status, reason)
        except Exception as error:
            self._say(f"the run could not be closed: {in_words(error)}")

    # --- being there, and not

    def _arm(self) -> None:
        """Look at the modules that are called next."""
        self._strangers.clear()
        self._armed_for = 0
        if self._armed is not None or self._off:
            return

        def look(module: nn.Module, _args: Any) -> None:
            if not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self._guarded(self._on_forward, module)

        self._armed = module_hooks.register_module_forward_pre_hook(look)
        # A compiled module warns of such hooks. This one is gone before anything is compiled.
        module_hooks._has_any_global_hook = self._is_any_hook_theirs

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.remove()
            self._armed = None
            module_hooks._has_any_global_hook = _has_any_global_hook
        self._strangers.clear()

    def _is_any_hook_theirs(self) -> Any:
        tables = [table for name, table in vars(module_hooks).items() if name.startswith("_global_")]
        return sum(len(table) for table in tables if isinstance(table, dict)) > 1

    def _turn_off(self) -> None:
        self._off = True
        self._disarm()
        self._losses.stop()

    def _guarded(self, do: Callable[[Any], None], what: Any) -> None:
        if self._off:
            return
        try:
            do(what)
        except Exception:
            self._fail()

    def _fail(self) -> None:
        """Something of ours went wrong: say so, once, and be gone."""
        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        self._trouble = in_words(error) if error is not None else "the probe failed"
        self._say(f"{self._trouble}; the training goes on without being recorded")
        self.close("failed", self._trouble)


_has_any_global_hook = module_hooks._has_any_global_hook


def _wanted(known: _Known) -> list[torch.Tensor]:
    optimizer = known.ref()
    return [] if optimizer is None else parameters_of(optimizer)


def _is_let_go(known: _Known) -> bool:
    """Nobody but the probe holds the optimizer any more."""
    optimizer = known.ref()
    if optimizer is None:
        return True
    # This variable, the call below, the probe; a learning rate schedule leaves a bound method in the optimizer.
    return sys.getrefcount(optimizer) <= 3 + ("step" in vars(optimizer))
