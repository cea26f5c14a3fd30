"""What the arguments of `Probe` mean, and their defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from gradtui import paths
from gradtui.metrics import DEFAULT_METRICS, PROBE_METRICS
from gradtui.probe.distributed import rank
from gradtui.probe.recorder import warn
from gradtui.runs import RunError

# Measuring updates needs a copy of the weights: of more than so many only where it is asked for.
UPDATE_ELEMENTS = 100_000_000


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """The metrics to measure, in the order of the table.

    `is_default`: none were asked for, so that updates are sampled, and the clipped norm is added where gradients
    are clipped. `remark` is a sentence about what was left out, or empty.
    """

    metrics: tuple[str, ...]
    is_default: bool = False
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The validated arguments of a probe; `keep`, `facts` and `log_first` as in `Probe`."""

    name: str
    path: Path
    metrics: MetricChoice
    every: int
    keep: int | None
    facts: Mapping[str, Any]
    log_first: bool | None


def check_model(model: object) -> None:
    """Raises TypeError or ValueError where `model` cannot be measured."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if any(is_lazy(p) for p in model.parameters()):
        raise ValueError(f"{type(model).__name__} has lazy parameters: run a batch through it first")
    if next(model.parameters(), None) is None:
        raise ValueError(f"{type(model).__name__} has no parameters: there is nothing to measure")


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


def choose_metrics(model: nn.Module, wanted: Sequence[str] | None) -> MetricChoice:
    """The metrics to measure of `model`; raises ValueError for names that there are not."""
    if wanted is None:
        elements = sum(p.numel() for p in model.parameters() if p.requires_grad)
        if elements <= UPDATE_ELEMENTS:
            return MetricChoice(DEFAULT_METRICS, is_default=True)
        remark = (
            f"updates are not measured: that takes a copy of all {elements / 1e6:,.0f} million weights; "
            "ask for it with metrics=[…, 'update_ratio']"
        )
        metrics = tuple(name for name in DEFAULT_METRICS if name != "update_ratio")
        return MetricChoice(metrics, is_default=True, remark=remark)
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in PROBE_METRICS:
            raise ValueError(f"metrics: there is no {name!r}; there are: {', '.join(PROBE_METRICS)}")
    if not names:
        raise ValueError(f"metrics is empty; choose from: {', '.join(PROBE_METRICS)}")
    return MetricChoice(tuple(name for name in PROBE_METRICS if name in names))


def default_name(model: nn.Module) -> str:
    """The script's name, or that of the model's class where there is no script."""
    stem = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
    return type(model).__name__ if stem in ("", "-c", "-m", "__main__", "ipykernel_launcher") else stem


def run_path(run: str | os.PathLike[str] | None, name: str) -> Path:
    """The run file to write, a new one by default; raises RunError where it exists or cannot be made."""
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
