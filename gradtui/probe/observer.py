"""Measures the steps of one model's training as hooks report them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from gradtui.metrics import CLIPPED
from gradtui.probe import torch_patches
from gradtui.probe.discovery import Layers
from gradtui.probe.hooks import is_from_signal_handler
from gradtui.probe.losses import Loss, LossLog
from gradtui.probe.measured_model import MeasuredModel
from gradtui.probe.meter import Meter
from gradtui.probe.optimizers import OptimizerHooks
from gradtui.probe.options import ProbeOptions
from gradtui.probe.recorder import warn
from gradtui.probe.recording import CompletedStep, Recording
from gradtui.probe.step_cycle import Action, Completed, StepCycle
from gradtui.probe.transfer import StepTag

P = ParamSpec("P")
S = TypeVar("S", bound="StepObserver")


def never_raises(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Wraps a method of `StepObserver`: an error in it disables the observer, and training goes on."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            if is_from_signal_handler(error):
                raise  # a time limit of the script, say
            self.disable_after(error)

    return guarded


class StepObserver:
    """Follows the training of one model. `StepCycle` says what to measure, this class does it.

    Implements `StepListener`, `ActivationListener` and `PatchListener`. Only the constructor raises: LayersError
    where `layers` names nothing in the model.
    """

    def __init__(self, model: nn.Module, layers: Layers, options: ProbeOptions) -> None:
        self.thread = threading.get_ident()
        self.is_closed = False
        self._options, self._metrics = options, options.metrics.metrics
        self._optimizers = OptimizerHooks(self)
        self._model = MeasuredModel(model, layers, self._optimizers.optimizers, self._metrics, self)
        self._cycle = StepCycle(every=options.every, samples_updates=options.metrics.is_default)
        self._losses = LossLog(options.log_first)
        self._recording: Recording | None = None  # from when the sites are known
        self._is_attached = False
        self._failure = ""
        # Of the step that is being taken.
        self._scalars: dict[str, Tensor | float] = {}
        self._weights_before: dict[Parameter, Tensor] | None = None
        # Of the step before.
        self._completed: CompletedStep | None = None
        self._ended_at: float | None = None
        self._keeps_weights = False  # without an optimizer: its update is measured at the next step

    def attach(self) -> None:
        """Register all hooks; without effect where they are, or after the end."""
        if not (self.is_closed or self._is_attached):
            self._is_attached = True
            self._model.attach()
            self._optimizers.attach()
            torch_patches.add_listener(self)

    @never_raises
    def detach(self) -> None:
        """Remove all hooks; neither the model nor its optimizers carry a trace of them."""
        if self._is_attached:
            self._send()
            self._remove_hooks()
            self._ended_at = None

    def add(self, optimizer: Optimizer) -> None:
        """Measure at the steps of this optimizer, too; raises RuntimeError once the first step was measured."""
        if optimizer in self._optimizers.optimizers:
            return
        if self._model.meter is not None:
            raise RuntimeError("the first step has been measured; an optimizer can no longer be added")
        self._optimizers.add(optimizer)
        self._cycle.optimizers += 1

    @property
    def has_optimizer(self) -> bool:
        """Whether steps are reported by an optimizer's hooks."""
        return bool(self._optimizers.optimizers)

    # --- the optimizers' hooks

    @never_raises
    def before_step(self, optimizer: int, *, has_closure: bool) -> None:
        """See `StepListener`."""
        self.thread = threading.get_ident()
        self._send()
        if self._failure or not self._cycle.is_due(optimizer):
            return
        if has_closure and self._model.meter is None:
            # The first forward pass is yet to come, and with it the sites.
            self._weights_before = self._model.copy_weights() if "update_ratio" in self._metrics else {}
            return
        if self._find_sites() is None:
            return
        for sentence in self._model.refresh(self._cycle.step):
            self.cannot_see(sentence)
        for attribute in ("grad_scale", "found_inf"):  # a fused optimizer unscales by itself
            value = getattr(self._optimizers.optimizers[optimizer], attribute, None)
            if isinstance(value, Tensor):
                self._scalars[attribute] = value.clone()
        self._measure(self._cycle.before(optimizer, has_closure=has_closure), optimizer)

    def after_step(self, optimizer: int) -> None:
        """See `StepListener`."""
        if not self._failure:
            self._measure_after_step(optimizer)
        self._finish(self._cycle.stepped(optimizer))

    @never_raises
    def _measure_after_step(self, optimizer: int) -> None:
        if self._weights_before is not None and (meter := self._find_sites()) is not None:
            meter.before_step(optimizer, self._weights_before)
        if self._model.meter is not None:
            self._measure(self._cycle.after(optimizer), optimizer)

    def _measure(self, action: Action, optimizer: int) -> None:
        meter = self._model.meter
        assert meter is not None
        if Action.READ_GRADIENTS in action:
            meter.read_gradients(optimizer)
        if Action.READ_CLIPPED in action:
            meter.read_clipped(optimizer)
        if Action.KEEP_WEIGHTS in action:
            self._scalars.update(meter.before_step(optimizer))
        if Action.MEASURE_UPDATE in action:
            meter.after_step(optimizer)

    @never_raises
    def measure_now(self) -> None:
        """Measure a step of a loop without an optimizer that the probe knows, after its backward pass."""
        meter, last = self._model.meter, self._completed
        if meter is not None and last is not None:
            if self._keeps_weights:
                meter.after_step()
                last.accumulator.extend(*meter.take_parameters())
            if self._recording is not None:
                self._recording.combine(last)
        self._send()
        if self._cycle.is_measured and self._find_sites() is not None:
            action = self._cycle.before(0)
            self._measure(action, 0)
            self._keeps_weights = Action.KEEP_WEIGHTS in action
        self._finish(self._cycle.stepped(0))

    # --- events for which torch has no hook

    @never_raises
    def before_clipping(self, gradients: Sequence[Tensor]) -> None:
        """See `PatchListener`."""
        if self._failure or not self._cycle.is_measured:
            return
        if not gradients or not self._model.owns_gradient(gradients[0]):
            return
        if self._options.metrics.is_default and CLIPPED not in self._metrics and self._model.meter is None:
            self._metrics = (*self._metrics, CLIPPED)
        if (meter := self._find_sites()) is None:
            return
        clipped = set(map(id, gradients))
        for optimizer in range(max(1, self._cycle.optimizers)):
            if any(id(p.grad) in clipped for p in meter.parameters(optimizer)):
                self._measure(self._cycle.clipping(optimizer), optimizer)

    @never_raises
    def before_scaled_step(self, optimizer: Optimizer, scale: Tensor | None) -> None:
        """See `PatchListener`."""
        if scale is not None and self._cycle.is_measured and self._optimizers.position(optimizer) is not None:
            self._scalars["stream_scale"] = scale.clone()

    def after_scaled_step(self, optimizer: Optimizer) -> None:
        """See `PatchListener`."""
        position = self._optimizers.position(optimizer)
        # If the optimizer has stepped, it is not due any more, or the step is complete and has left no scale.
        if position is not None and "stream_scale" in self._scalars and self._cycle.is_due(position):
            self._drop(position)
            self._finish(self._cycle.skipped(position))

    @never_raises
    def _drop(self, optimizer: int) -> None:
        if self._recording is not None:
            self._recording.skipped(self._cycle.step)
        if self._model.meter is not None:
            self._model.meter.drop_gradients(optimizer)

    # --- the hooks on modules

    def on_first_forward(self) -> None:
        """See `ActivationListener`."""
        self.thread = threading.get_ident()

    def is_gradient_cleared(self) -> bool:
        """See `ActivationListener`; False before the sites are known."""
        if self._model.meter is None or self._cycle.has_read_gradients:
            return False
        return self._model.has_no_gradient()

    def on_passes_without_step(self) -> None:
        """See `ActivationListener`."""
        if self._recording is not None:
            self._recording.pass_without_step(self._cycle.step)

    # --- the end of a step

    def _finish(self, completed: Completed | None) -> None:
        if completed is None:
            return
        scalars, self._scalars, self._weights_before = self._scalars, {}, None
        if not self._failure:
            self._collect(completed, scalars)
        if completed.is_taken and self.has_optimizer:
            self._share(completed)

    @never_raises
    def _collect(self, completed: Completed, scalars: dict[str, Tensor | float]) -> None:
        """Keep what a step has measured until its loss is known."""
        loss, meter = self._losses.take(), self._model.meter
        if not completed.is_taken:
            self._model.take()
            return
        now = time.perf_counter()
        seconds = 0.0 if self._ended_at is None else now - self._ended_at
        self._ended_at = now
        if meter is None:
            return
        accumulator = meter.take()
        meter.activations.enabled = self._cycle.is_measured
        if completed.is_measured:
            rate = self._optimizers.learning_rate()
            scalars |= {name: value for name, value in (("lr", rate), ("loss", loss)) if value is not None}
            tag = StepTag(completed.step, time.time(), seconds)
            self._completed = CompletedStep(tag, accumulator, scalars)
            if self._recording is not None:
                self._recording.check(accumulator, meter)

    @never_raises
    def _share(self, completed: Completed) -> None:
        """Add up a step over all processes, at once: each of them comes to this line at the same step."""
        if self._recording is not None and completed.is_measured:
            self._recording.combine(self._completed)
        if self._losses.logs_first:
            self._send()

    def log(self, loss: Loss) -> None:
        """Record the loss of the step that is being taken, or of the last one: as it is with the first loss."""
        self._losses.note_order(self._cycle.step)
        if self._losses.logs_first:
            if self._cycle.is_measured:
                self._losses.add(loss)
        elif self._completed is not None:
            self._completed.scalars.setdefault("loss", loss)
            if self.has_optimizer:
                self._send_completed()

    @never_raises
    def _send_completed(self) -> None:
        self._send()

    def _send(self) -> None:
        step, self._completed = self._completed, None
        if step is not None and self._recording is not None:
            self._recording.send(step)

    def cannot_see(self, sentence: str) -> None:
        """Record and warn of something that cannot be measured, once; without effect before the first step."""
        if self._recording is not None:
            self._recording.cannot_see(sentence)

    def _find_sites(self) -> Meter | None:
        """The meter, if the sites are known; begins the recording when they are found."""
        if self._model.meter is None:
            meter = self._model.find_sites(self._metrics)
            if meter is not None:
                self._recording = Recording(self._options, self._model, meter)
        return self._model.meter

    # --- the end

    @never_raises
    def close(self, status: str | None = None, reason: str = "") -> None:
        """Remove all hooks and finish the run file; a second call does nothing."""
        if self.is_closed:
            return
        self.detach()
        self.is_closed = True
        if self._recording is not None:
            self._recording.close(status or ("failed" if self._failure else "done"), reason or self._failure)

    def abandon(self) -> None:
        """In a forked child, which has no recorder: remove all hooks and do nothing any more."""
        self.is_closed = True
        self._remove_hooks()

    def disable_after(self, error: Exception) -> None:
        """An error of the probe's own: warn once, and measure no more."""
        if self.is_closed or self._failure:
            return
        self._failure = f"the probe failed: {describe(error)}"
        warn(f"{self._failure}; training goes on without it")
        self._completed = None
        with contextlib.suppress(Exception):
            if self._recording is not None and self._recording.is_shared and self.has_optimizer:
                # The other processes call the collective at every step, and so must this one.
                self._model.detach()
            else:
                self.close("failed", self._failure)

    def _remove_hooks(self) -> None:
        self._is_attached = False
        self._scalars = {}
        self._model.detach()
        self._optimizers.detach()
        self._cycle.restart()
        torch_patches.remove_listener(self)


def describe(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    try:
        first = str(error).partition("\n")[0][:300]
    except Exception:  # an exception class of the script's may fail to give its message
        first = ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
