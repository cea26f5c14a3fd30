"""Where the measured steps of a training script go: to the other processes, to the host, into the run file."""

from __future__ import annotations

import shlex
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradtui.metrics import SAMPLED_METRICS
from gradtui.probe.accumulator import StepAccumulator
from gradtui.probe.coverage import Coverage
from gradtui.probe.discovery import unmeasurable_parameters
from gradtui.probe.distributed import join_processes, rank
from gradtui.probe.measured_model import MeasuredModel
from gradtui.probe.meter import Meter
from gradtui.probe.options import ProbeOptions
from gradtui.probe.recorder import RecorderThread, RunSettings, model_facts
from gradtui.probe.transfer import StepTag, Transfer
from gradtui.runs.schema import Event


@dataclass(slots=True)
class CompletedStep:
    """A measured step whose loss may still be logged."""

    tag: StepTag
    accumulator: StepAccumulator
    scalars: dict[str, Tensor | float]


class Recording:
    """The run of one model whose sites are known.

    Of several processes that train the model, the first one records the numbers of all. Raises RunError where the
    run file cannot be made.
    """

    def __init__(self, options: ProbeOptions, model: MeasuredModel, meter: Meter) -> None:
        self._model = model
        device = next(model.model.parameters()).device
        self._transfer = Transfer(device)
        self._coverage = Coverage(
            [site.name for site in meter.sites], meter.rows, [hook.site for hook in meter.activations.hooks]
        )
        facts = _facts(options, model, device)
        settings = RunSettings(options.path, meter.sites, meter.metrics, facts, options.keep)
        self._recorder: RecorderThread | None = None
        try:
            if rank() == 0:
                self._recorder = recorder = RecorderThread(settings, meter.hints)
                # If the probe is dropped without `close`, the file must not say for ever that it is being written.
                weakref.finalize(self, recorder.close, "done").atexit = False
        finally:  # the other processes wait for an answer, whatever happens here
            is_ready = rank() != 0 or self._recorder is not None
            self._processes, alone = join_processes(model.given, meter.measured_sites, device, is_ready=is_ready)
        for sentence in (options.metrics.remark, alone):
            if sentence:
                self.cannot_see(sentence)

    @property
    def is_shared(self) -> bool:
        """Whether other processes train the model, too: then all must call `combine` at each measured step."""
        return self._processes is not None

    def combine(self, step: CompletedStep | None) -> None:
        """Add up what all processes have measured in a step, None: nothing in this one."""
        if self._processes is not None:
            empty = StepAccumulator.empty(self._processes.sites)
            self._processes.combine(empty if step is None else step.accumulator)

    def send(self, step: CompletedStep) -> None:
        """Send a step to the host, and record what has arrived there."""
        if self._recorder is None or (self.is_shared and step.accumulator.combined is None):
            return
        for pending in self._transfer.send(step.tag, step.accumulator, step.scalars):
            self._recorder.put(pending)

    def skipped(self, step: int) -> None:
        """Record that a GradScaler has left a step out."""
        if self._recorder is not None:
            text = "the gradients were not finite; the loss scale goes down"
            self._recorder.event(Event(step, "skipped", text=text))

    def check(self, step: StepAccumulator, meter: Meter) -> None:
        """Find out what a step should have measured and has not."""
        coverage = self._coverage
        coverage.step_done()
        if not coverage.is_due(step):
            return
        errors = {hook.site: hook.error for hook in meter.activations.hooks if hook.error}
        for sentence in coverage.observe(step, errors, is_compiled=self._model.is_compiled()):
            self.cannot_see(sentence)
        if coverage.is_in_doubt:
            meter.activations.reattach(self._model.given)

    def pass_without_step(self, step: int) -> None:
        """Very much has been measured since step `step` began."""
        for sentence in self._coverage.pass_without_step(step):
            self.cannot_see(sentence)

    def cannot_see(self, sentence: str) -> None:
        """Record and warn of something that cannot be measured, once."""
        if self._recorder is not None:
            self._recorder.cannot_see(sentence)

    def close(self, status: str, reason: str) -> None:
        """Record what is under way, and how the run ended."""
        if self._recorder is not None:
            for sentence in self._coverage.suspected:
                self.cannot_see(sentence)
            for pending in self._transfer.drain():
                self._recorder.put(pending)
            self._recorder.close(status, reason)


def _facts(options: ProbeOptions, model: MeasuredModel, device: torch.device) -> dict[str, Any]:
    facts = {
        "source": "script",
        "name": options.name,
        "script": shlex.join(sys.argv),
        "every": options.every,
        "closely": list(SAMPLED_METRICS) if options.metrics.is_default else [],
        "blind": [],
        "frozen": model.frozen_sites(),
        "skipped": unmeasurable_parameters(model.model),
    }
    return facts | model_facts(model.model, device) | dict(options.facts)
