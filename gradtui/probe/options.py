"""What a probe's arguments mean."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from gradtui import paths
from gradtui.metrics import DEFAULT_METRICS, PROBE_METRICS
from gradtui.probe.distributed import rank
from gradtui.probe.recorder import ProbeWarning
from gradtui.runs import RunError

# Measuring updates means keeping the weights of before each step: above this many, only where it is asked for.
UPDATE_ELEMENTS = 100_000_000


def whole_number(name: str, value: object) -> int:
    """`value` as a number of steps; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of steps, at least 1, not {value!r}")
    return value


def several_optimizers(given: Optimizer | Iterable[Optimizer] | None) -> list[Optimizer]:
    """None, one or several optimizers as a list; raises TypeError for anything else."""
    many = [] if given is None else [given] if isinstance(given, Optimizer) else list(given)
    for one in many:
        if not isinstance(one, Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer or several, not {type(one).__name__}")
    return many


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """The one that really steps, inside wrappers such as Accelerate's."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


def choose_metrics(model: nn.Module, wanted: Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
    """The metrics to measure, in the order of the table, and what is to be said about the choice."""
    if wanted is None:
        elements = sum(p.numel() for p in model.parameters() if p.requires_grad)
        if elements <= UPDATE_ELEMENTS:
            return DEFAULT_METRICS, []
        remark = (
            f"updates are not measured: that takes a copy of all {elements / 1e6:,.0f} million weights; "
            "ask for it with metrics=[…, 'update_ratio']"
        )
        return tuple(name for name in DEFAULT_METRICS if name != "update_ratio"), [remark]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in PROBE_METRICS:
            raise ValueError(f"metrics: there is no {name!r}; there are: {', '.join(PROBE_METRICS)}")
    if not names:
        raise ValueError(f"metrics is empty; choose from: {', '.join(PROBE_METRICS)}")
    return tuple(name for name in PROBE_METRICS if name in names), []


def default_name(model: nn.Module) -> str:
    """The script's name, or that of the model's class where there is no script."""
    stem = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
    return type(model).__name__ if stem in ("", "-c", "-m", "__main__", "ipykernel_launcher") else stem


def run_path(run: str | os.PathLike[str] | None, name: str) -> Path:
    """The run file to write, a new one by default; raises RunError where it is there or cannot be made."""
    if run is None:
        data, reason = paths.usable_data_directory()
        if reason:
            warn(f"{reason}; recording in {data}")
        return paths.new_run_path(paths.run_directory(data), name)
    path = Path(run).expanduser().absolute()
    if rank() != 0:  # only the first process records
        return path
    if path.exists():
        raise RunError(f"{path} already exists; name another file or remove it first")
    reason = paths.why_not_writable(path.parent)
    if reason:
        raise RunError(reason)
    return path


def warn(sentence: str) -> None:
    """Say something to the user, and never raise."""
    try:
        warnings.warn(f"gradtui: {sentence}", ProbeWarning, stacklevel=4)
    except ProbeWarning:  # warnings have been made errors, but this one must not end the training
        sys.stderr.write(f"gradtui: {sentence}\n")
