"""The public probe: attaches to anybody's model and optimizer, measures at each step, records in a run file."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from types import TracebackType
from typing import Any, ParamSpec, Self

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gradtui import __version__
from gradtui.metrics import CLIPPED, FIRST_SAMPLED_BY_PROBE, SAMPLED_METRICS, is_sampled_step
from gradtui.probe import torch_patches as interpose
from gradtui.probe.accumulator import StepAccumulator, Totals
from gradtui.probe.activations import ActivationHooks, by_signal
from gradtui.probe.discovery import (
    Layers,
    find_candidates,
    is_compiled,
    rebind_sites,
    resolve_sites,
    skipped,
    unwrapped,
)
from gradtui.probe.distributed import Ranks, meet, rank
from gradtui.probe.meter import Meter, rows_of
from gradtui.probe.options import (
    choose_metrics,
    default_name,
    inner_optimizer,
    run_path,
    several_optimizers,
    warn,
    whole_number,
)
from gradtui.probe.parameters import MEASURABLE
from gradtui.probe.recorder import Recorder, Tag
from gradtui.probe.wire import Wire
from gradtui.runs.schema import Event

# If no forward pass was heard by then, none will be: the model is compiled as a whole, or called by other ways.
PATIENCE_STEPS = 2
# Whether parts of the model were replaced is looked at when the optimizer's groups change, and so often anyway.
LOOK_EVERY = 16
# So often a changed number of collected values is looked into; a model may change them at every step.
LOOKS = 20

P = ParamSpec("P")


@dataclass(slots=True)
class _Held:
    """A measured step whose loss may still be logged."""

    scalars: dict[str, Tensor | float]
    tally: StepAccumulator
    tag: Tag


@dataclass(slots=True)
class _Round:
    """Where the optimizers are within one step: by position, whose gradients were read and who has stepped."""

    read: set[int] = field(default_factory=set)
    clipped: set[int] = field(default_factory=set)
    stepped: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    scalars: dict[str, Tensor | float] = field(default_factory=dict)
    weights: dict[Parameter, Tensor] | None = None  # from before, where the sites are known only afterwards


def _harmless(method: Callable[P, None]) -> Callable[P, None]:
    """Whatever goes wrong in the probe is the probe's own affair: it says so once and is gone."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            if by_signal(error):
                raise  # a time limit of the script's that ran out just here
            args[0]._give_up(error)  # type: ignore[attr-defined]

    return guarded


class Probe:
    """Measures gradients, activations and updates of `model`, by layer, at every step of `optimizer`.

        with gradtui.Probe(model, optimizer) as probe:
            for batch in loader:
                ...
                probe.log(loss=loss)  # optional

    It listens from the moment it is made. With an optimizer (or several: a step is then complete once each has
    stepped) it measures by itself, so gradient accumulation counts once; without one, call `step()` after
    backward.

    `run` is the run file to write (default: a new one in gradtui's data directory); `layers` a path such as
    "transformer.h", a list of modules, or a predicate of (name, module), default: the residual blocks that are
    found; `metrics` some of grad_norm, act_rms, stream_grad, weight_norm, update_ratio, mean_share, clipped_norm,
    default: all but mean_share, clipped_norm where gradients are clipped, and weight_norm and update_ratio at each
    of the first five steps and every tenth later (name them to have them at every step);
    `every` measures each k-th step only; `keep` bounds the file to that many steps in full, older ones thinned.

    For those who build on it: `facts` are noted in the run file, `log_first` says whether losses are logged before
    their step (default: as the first one is), and without `until_exit` the end of the interpreter closes nothing.

    Raises RunError where the run file exists or cannot be made, LayersError (a ValueError) where `layers` names
    nothing, ValueError or TypeError for other arguments. After that it never raises and never changes what is
    computed: what it cannot do is a ProbeWarning and a sentence in the run file, and training goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Iterable[Optimizer] | None = None,
        *,
        run: str | os.PathLike[str] | None = None,
        layers: Layers = None,
        metrics: Sequence[str] | None = None,
        every: int = 1,
        name: str | None = None,
        keep: int | None = None,
        facts: Mapping[str, Any] | None = None,
        log_first: bool | None = None,
        until_exit: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        if any(is_lazy(p) for p in model.parameters()):
            raise ValueError(f"{type(model).__name__} has lazy parameters: run a batch through it first")
        self._every = whole_number("every", every)
        self._keep = None if keep is None else whole_number("keep", keep)
        self._outer, self._model = model, unwrapped(model)
        self._metrics, self._remarks = choose_metrics(self._model, metrics)
        self._clipping_welcome = self._sparing = metrics is None
        self._remembering = False
        # Now, not at the first step: a script may by then have frozen what is not that optimizer's turn.
        self._trainable = frozenset(p for p in self._model.parameters() if p.requires_grad)
        self._frozen = [p for p in self._model.parameters() if not p.requires_grad and p.dtype in MEASURABLE]
        self._survey = find_candidates(self._model, layers)
        self.name = name or default_name(self._model)
        self.path = run_path(run, self.name)
        self._facts = dict(facts or {})
        self._parameter = next(self._model.parameters(), None)
        if self._parameter is None:
            raise ValueError(f"{type(self._model).__name__} has no parameters: there is nothing to measure")
        self._optimizers: list[Optimizer] = []
        self._handles: list[RemovableHandle] = []
        self._step = 0
        self._round = _Round()
        self._held: _Held | None = None
        self._waited = 0
        self._losses: list[Tensor | float] = []
        self._log_first = log_first
        self._ended_at: float | None = None
        self._streams = ActivationHooks(self._survey.taps, rows_of(self._metrics))
        self._meter: Meter | None = None
        self._wire = Wire(self._parameter.device)
        self._recorder: Recorder | None = None
        self._ranks: Ranks | None = None
        self._blind: list[str] = []
        self._usual, self._looks = -1, 0
        self._mute, self._failure = False, ""
        self._known: list[Parameter] = []
        self._group_sizes: list[int] = []
        self._folds = 0
        self._suspected: list[str] = []
        self._closed = self._attached = False
        self._pid = os.getpid()
        self._streams.entered = self._enter
        self.thread = threading.get_ident()
        _living.add(self)
        for one in several_optimizers(optimizer):
            self.adopt(one)
        self.attach()
        self._farewell = partial(_farewell, weakref.ref(self))
        if until_exit:
            atexit.register(self._farewell)

    def _enter(self) -> None:
        self.thread = threading.get_ident()

    # --- attaching

    def attach(self) -> None:
        """Listen (again)."""
        if self._closed or self._attached:
            return
        self._attached = True
        (self._meter.streams if self._meter else self._streams).attach()
        for optimizer in self._optimizers:
            self._hook(optimizer)
        interpose.listen(self)

    @_harmless
    def detach(self) -> None:
        """Stop listening; neither model nor optimizer carries a trace. The run stays open for `attach`."""
        if not self._attached:
            return
        self._attached = False
        self._ship()
        self._streams.detach()
        if self._meter is not None:
            self._meter.detach()
            self._meter.take()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._ended_at = None
        interpose.leave(self)

    def adopt(self, optimizer: Optimizer) -> None:
        """Measure at the steps of this optimizer too. Only until the first step was measured."""
        inner = inner_optimizer(optimizer)
        if inner in self._optimizers:
            return
        if self._meter is not None:
            raise RuntimeError("the first step has been measured; an optimizer can no longer be added")
        self._optimizers.append(inner)
        if self._attached:
            self._hook(inner)

    def _hook(self, optimizer: Optimizer) -> None:
        position, pid = self._optimizers.index(optimizer), self._pid

        def before(_optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            # A compiled step must not take the hook into its graph, and a forked child has no recorder.
            if torch.compiler.is_compiling() or os.getpid() != pid:
                return
            self.thread = threading.get_ident()
            closure = kwargs.get("closure") or next((a for a in args[1:] if a is not None), None)
            self._before_step(position, closure is not None)

        def after(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            if torch.compiler.is_compiling() or os.getpid() != pid:
                return
            self._after_step(position)

        self._handles.append(optimizer.register_step_pre_hook(before))
        self._handles.append(optimizer.register_step_post_hook(after))

    # --- a step

    @property
    def _measuring(self) -> bool:
        return self._step % self._every == 0

    @property
    def _close(self) -> bool:
        """Whether this step's update is measured, too."""
        return not self._sparing or is_sampled_step(self._step // self._every, FIRST_SAMPLED_BY_PROBE)

    @_harmless
    def _before_step(self, position: int, closure: bool) -> None:
        if self._mute:
            return
        self._ship()
        if not self._measuring or position in self._round.stepped:
            return  # of several steps of one optimizer before all have stepped, the first counts
        if closure and self._meter is None:
            # The first forward pass is yet to come, and with it the sites.
            self._round.weights = self._all_weights()
            return
        if not self._ready():
            return
        assert self._meter is not None
        if self._is_changed():
            self._renew(self._meter)
        if any(p.requires_grad for p in self._frozen):
            self._thaw(self._meter)
        optimizer = self._optimizers[position]
        for attribute in ("grad_scale", "found_inf"):  # a fused optimizer unscales by itself
            value = getattr(optimizer, attribute, None)
            if isinstance(value, Tensor):
                self._round.scalars[attribute] = value.clone()
        if not closure:  # with one, backward is yet to come
            self._read(position)
        if self._close:
            self._round.scalars.update(self._meter.before_step(position))

    def _after_step(self, position: int) -> None:
        if not self._mute:
            self._measure_update(position)
        if self._mute:
            self._keep_step(position)

    def _keep_step(self, position: int) -> None:
        """After a failure of this process's probe: meet the other processes with nothing in hand."""
        self._round.stepped.add(position)
        if len(self._round.stepped) == len(self._optimizers):
            if self._measuring and self._ranks is not None:
                self._ranks.combine(StepAccumulator(elements=[0] * self._ranks.sites))
            self._round = _Round()
            self._step += 1

    @_harmless
    def _measure_update(self, position: int) -> None:
        first = self._round.weights
        if first is not None and self._ready() and self._meter is not None:
            self._meter.before_step(position, first)
        meter = self._meter if self._measuring and position not in self._round.stepped else None
        if meter is not None:
            self._read(position)
            if self._close:
                meter.after_step(position)
        self._round.stepped.add(position)
        if len(self._round.stepped | self._round.skipped) == len(self._optimizers):
            self._finish(_rate(self._optimizers[0]))

    @_harmless
    def step(self) -> None:
        """Measure now: after backward, in a loop whose optimizer the probe does not know.

        How far the update moved the weights is known at the next call.
        """
        if self._optimizers:
            warn("this probe measures at its optimizer's steps by itself; leave probe.step() out")
            return
        meter = self._meter
        if meter is not None and self._held is not None:
            if self._remembering:
                meter.after_step()
                late = meter.take_weights()
                self._held.tally.values += late.values
                self._held.tally.places += late.places
            if self._ranks is not None:
                self._ranks.combine(self._held.tally)
        self._ship()
        if self._measuring and self._ready():
            assert self._meter is not None
            self._read(0)
            self._remembering = self._close
            if self._remembering:
                self._meter.before_step()
        self._finish(None)

    def _is_changed(self) -> bool:
        """Whether parts of the model were replaced, or other parameters given to the optimizer."""
        sizes = [len(group["params"]) for optimizer in self._optimizers for group in optimizer.param_groups]
        if sizes == self._group_sizes and self._step % LOOK_EVERY:
            return False
        known, self._known = self._known, list(self._model.parameters())
        self._group_sizes = sizes
        return len(known) != len(self._known) or any(a is not b for a, b in zip(known, self._known, strict=True))

    def _renew(self, old: Meter) -> None:
        """Parts of the model have been replaced: measure the new ones at the sites of the old."""
        places, unknown = rebind_sites(self._model, old.places, self._survey.names)
        self._survey = replace(self._survey, names={m: name for name, m in self._model.named_modules()})
        self._trainable |= {p for p in self._known if p.requires_grad}
        self._frozen = [p for p in self._known if not p.requires_grad and p.dtype in MEASURABLE]
        self._meter = meter = Meter(places, self._metrics, self._owners(), self._trainable)
        meter.follow(old)
        self._listen_for(meter)
        old.detach()
        meter.attach()
        if unknown:
            names = ", ".join(unknown[:4]) + (f" and {len(unknown) - 4} more" if len(unknown) > 4 else "")
            self._cannot_see(
                f"{names} came to the model at step {self._step}, when its sites were known: not measured"
            )

    def _owners(self) -> list[frozenset[Parameter]]:
        owners = [frozenset(p for g in o.param_groups for p in g["params"]) for o in self._optimizers]
        return owners or [frozenset()]

    def _mind(self, sums: Totals, scalars: Mapping[str, float]) -> None:
        if self._meter is not None:
            self._meter.mind(sums, scalars)

    def _listen_for(self, meter: Meter) -> None:
        meter.streams.folded = self._idle
        meter.streams.is_cleared = self._is_cleared

    def _is_cleared(self) -> bool:
        return not self._round.read and all(p.grad is None for p in self._known)

    def _idle(self) -> None:
        """Very much has been heard without a step."""
        self._folds += 1
        if self._folds == 2:
            self._cannot_see(
                f"gradients keep arriving, but this probe's optimizer has not stepped since step {self._step}: if "
                "another one has taken over, give that one to a probe"
            )

    def _thaw(self, meter: Meter) -> None:
        """Layers that were frozen are trained now."""
        self._trainable |= {p for p in self._frozen if p.requires_grad}
        self._frozen = [p for p in self._frozen if not p.requires_grad]
        meter.train(self._trainable)

    def _all_weights(self) -> dict[Parameter, Tensor]:
        wanted = "update_ratio" in self._metrics
        return {p: p.detach().clone() for p in self._model.parameters() if wanted and p.requires_grad}

    def _read(self, position: int) -> None:
        """Take the gradients: as they are before clipping, and once more if they have been clipped."""
        assert self._meter is not None
        done = self._round
        if position not in done.read:
            done.read.add(position)
            self._meter.read_gradients(position)
        elif position in done.clipped and CLIPPED in self._metrics:
            done.clipped.discard(position)
            self._meter.read_clipped(position)

    def _finish(self, rate: Tensor | float | None) -> None:
        """A step is complete: hold it until its loss is known."""
        ended = time.perf_counter()
        seconds = 0.0 if self._ended_at is None else ended - self._ended_at
        self._ended_at = ended
        if self._meter is not None and self._measuring:
            scalars = self._round.scalars
            if rate is not None:
                scalars["lr"] = rate
            if self._losses:
                self._log_first = True
                scalars["loss"] = _mean(self._losses)
            tally = self._meter.take()
            self._held = _Held(scalars, tally, Tag(self._step, time.time(), seconds))
            self._look(tally)
            if self._ranks is not None and self._optimizers:
                # At once, wherever the loss is logged: every process comes by here at the same step.
                self._ranks.combine(tally)
        self._losses = []
        self._round = _Round()
        self._step += 1
        self._folds = 0
        if self._meter is not None:
            self._meter.streams.on = self._measuring
            if not self._measuring:
                self._meter.take()  # what a late backward pass may have left
        if self._log_first and self._optimizers:
            self._ship()

    def _ship(self) -> None:
        """Send the held step off and record what has arrived."""
        held, self._held = self._held, None
        if held is None or self._recorder is None or (self._ranks is not None and held.tally.combined is None):
            return
        for parcel in self._wire.send(held.tally, held.scalars, held.tag):
            self._recorder.put(parcel)

    def log(self, *, loss: Tensor | float | None = None, **others: object) -> None:
        """Record the step's loss: a number, or a tensor, which is not waited for.

        Before the optimizer's step or after it; several before one step (gradient accumulation) are averaged.
        Of anything else that is logged a ProbeWarning says that it is not recorded.
        """
        if self._closed:
            return
        if others:
            self._cannot_see(f"only the loss is recorded, not {', '.join(others)}")
            if loss is None:
                return
        try:
            if isinstance(loss, Tensor):
                value: Tensor | float = loss.detach().float().mean() if loss.ndim else loss.detach().clone()
            else:
                value = float(loss)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            self._cannot_see(f"a loss cannot be recorded: {error}")
            return
        if self._log_first is None:
            self._log_first = self._step == 0
        if self._log_first:
            if self._measuring:
                self._losses.append(value)
        elif self._held is not None:
            self._held.scalars.setdefault("loss", value)
            self._log_held()

    @_harmless
    def _log_held(self) -> None:
        if self._optimizers:
            self._ship()

    # --- what torch has no hook for

    @_harmless
    def clipping(self, gradients: Sequence[Tensor]) -> None:
        """Gradients are about to be clipped: take them as they are, if they are this model's."""
        if not self._measuring or not gradients or not self._concerns(gradients[0]):
            return
        if self._clipping_welcome and CLIPPED not in self._metrics and self._meter is None:
            self._metrics = (*self._metrics, CLIPPED)
        if not self._ready():
            return
        assert self._meter is not None
        about = set(map(id, gradients))
        for position in range(max(1, len(self._optimizers))):
            if not any(id(p.grad) in about for p in self._meter.parameters(position)):
                continue  # it is another optimizer's turn
            if position in self._round.stepped:
                continue
            self._round.clipped.add(position)
            if position not in self._round.read:
                self._read(position)

    def _concerns(self, gradient: Tensor) -> bool:
        known = self._meter.all_parameters if self._meter is not None else self._model.parameters()
        return any(p.grad is gradient for p in known)

    @_harmless
    def scaling(self, optimizer: Optimizer, scale: Tensor | None) -> None:
        """A GradScaler is about to let an optimizer step."""
        if scale is not None and inner_optimizer(optimizer) in self._optimizers and self._measuring:
            self._round.scalars["stream_scale"] = scale.clone()

    @_harmless
    def scaled(self, optimizer: Optimizer) -> None:
        """The GradScaler is done: if the optimizer has not stepped, it was left out."""
        inner = inner_optimizer(optimizer)
        if inner not in self._optimizers or "stream_scale" not in self._round.scalars:
            return
        position, done = self._optimizers.index(inner), self._round
        if position in done.stepped:
            return
        if self._recorder is not None:
            text = "the gradients were not finite; the loss scale goes down"
            self._recorder.event(Event(self._step, "skipped", text=text))
        done.skipped.add(position)
        if self._meter is not None:
            self._meter.drop_gradients(position)
        if len(done.skipped) == len(self._optimizers):
            self._round = _Round()
            self._losses = []
            (self._meter or self._streams).take()
        elif len(done.stepped | done.skipped) == len(self._optimizers):
            self._finish(_rate(self._optimizers[0]))

    # --- getting to know the model

    def _ready(self) -> bool:
        """Whether it is known what to measure; finds out after the first forward pass was heard."""
        if self._meter is not None:
            return True
        heard = self._streams
        nothing = not heard.order and self._survey.chosen is None
        if nothing and self._waited < PATIENCE_STEPS and not is_compiled(self._outer):
            self._waited += 1
            return False
        places = resolve_sites(self._survey, heard.heard())
        meter = Meter(places, self._metrics, self._owners(), self._trainable)
        heard.detach()
        meter.adopt(heard)
        if self._attached:
            meter.attach()
        self._listen_for(meter)
        self._meter = meter
        self._is_changed()  # from here on
        moving = {p for p in self._model.parameters() if p.requires_grad} | self._trainable
        frozen = [p.site.name for p in places if p.parameters and moving.isdisjoint(p.parameters)]
        facts = self._describe() | {"frozen": frozen, "skipped": skipped(self._model)} | self._facts
        try:
            if rank() == 0:
                self._recorder = recorder = Recorder(
                    self.path, meter.sites, self._metrics, facts, self._keep, weakref.WeakMethod(self._mind)
                )
                # Dropped without a word: the file must not say for ever that it is being written.
                weakref.finalize(self, recorder.close, "done", "").atexit = False
        finally:  # the others have to be told, whatever happens here
            ready = rank() != 0 or self._recorder is not None
            self._ranks, alone = meet(self._model, self._outer, places, self._wire.device, ready=ready)
        for remark in [*self._remarks, *([alone] if alone else [])]:
            self._cannot_see(remark)
        return True

    def _describe(self) -> dict[str, Any]:
        device = self._wire.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        return {
            "source": "script",
            "name": self.name,
            "script": shlex.join(sys.argv),
            "device": device.type,
            "device_name": name,
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "every": self._every,
            "closely": list(SAMPLED_METRICS) if self._sparing else [],
            "blind": [],
            "versions": {
                "gradtui": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    def _look(self, tally: StepAccumulator) -> None:
        """Whenever a step has collected more or less than the one before: is there something out of sight?"""
        count = self._meter.heard(tally) if self._meter is not None else 0
        if count == self._usual or self._looks >= LOOKS or self._meter is None:
            return
        self._usual = count
        self._looks += 1
        out_of_sight, self._suspected = (
            self._suspected,
            self._meter.blind(tally, compiled=is_compiled(self._outer)),
        )
        if self._suspected and not out_of_sight:
            # Modules may have been compiled since: listen at them from outside, and look again at the next step.
            self._meter.streams.attach_anew(self._outer)
            self._usual = -1
        elif self._suspected:
            for sentence in self._suspected:
                self._cannot_see(sentence)

    def _cannot_see(self, sentence: str) -> None:
        if sentence in self._blind or self._recorder is None:
            return
        self._blind.append(sentence)
        self._recorder.set_facts(blind=list(self._blind))
        warn(sentence)

    # --- the end

    @_harmless
    def close(self, status: str | None = None, reason: str = "") -> None:
        """Detach and finish the run file; `status` is done unless said otherwise. Twice does nothing."""
        if self._closed:
            return
        self.detach()
        self._closed, self._mute = True, False
        atexit.unregister(self._farewell)
        if self._recorder is not None and os.getpid() == self._pid:
            for sentence in self._suspected:
                self._cannot_see(sentence)
            for parcel in self._wire.drain():
                self._recorder.put(parcel)
            failed = "failed" if self._failure else "done"
            self._recorder.close(status or failed, reason or self._failure)

    def _give_up(self, error: Exception) -> None:
        """The probe's own failure: say so, once, and be gone."""
        if self._closed:
            return
        reason = f"the probe failed: {_sentence(error)}"
        warn(f"{reason}; training goes on without it")
        self._held = None
        if self._ranks is not None and self._optimizers:
            # The other processes come to the collective at every step; this one must come, too, with nothing.
            self._mute, self._failure = True, reason
            return
        with contextlib.suppress(Exception):
            self.close("failed", reason)

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped", "interrupted")
        else:
            self.close("failed", _sentence(error))


_living: weakref.WeakSet[Probe] = weakref.WeakSet()


def _forget_in_child() -> None:
    """A forked child has no recorder, and its model no probe."""
    for probe in list(_living):
        probe._closed = probe._mute = True
        probe._attached = False
        probe._streams.detach()
        if probe._meter is not None:
            probe._meter.detach()
        for handle in probe._handles:
            handle.remove()
        interpose.leave(probe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _farewell(reference: weakref.ref[Probe]) -> None:
    """The interpreter ends without the probe having been closed."""
    probe = reference()
    if probe is None:
        return
    error = getattr(sys, "last_value", None)
    if error is None:
        probe.close()
    else:
        probe.close("failed", _sentence(error))


def _rate(optimizer: Optimizer) -> Tensor | float | None:
    rate = optimizer.param_groups[0].get("lr")
    return rate.clone() if isinstance(rate, Tensor) else rate


def _mean(losses: Sequence[Tensor | float]) -> Tensor | float:
    if len(losses) == 1:
        return losses[0]
    tensors = [loss for loss in losses if isinstance(loss, Tensor)]
    if not tensors:
        return sum(float(loss) for loss in losses) / len(losses)
    like = tensors[0]
    return torch.stack([torch.as_tensor(loss, dtype=like.dtype, device=like.device) for loss in losses]).mean()


def _sentence(error: BaseException) -> str:
    try:
        first = str(error).partition("\n")[0][:300]
    except Exception:  # somebody's exception, which has to pass through here whatever it is
        first = ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
