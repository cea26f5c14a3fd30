"""A run as a figure for a paper: each metric by depth and over the steps. The one place that loads matplotlib."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradtui.analysis.depth import Depth, by_depth, depth_of, each_site
from gradtui.export import LOSS, Choice, ExportError
from gradtui.metrics import METRICS, SAMPLE_EVERY, STREAM_METRICS, TRUNK_SHARE
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import PYRAMID_FACTOR, Flags
from gradtui.runs.shapes import Snapshot
from gradtui.runs.thinning import level_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = "a figure needs matplotlib, which is not installed; pip install 'gradtui[export]' installs it"

# What each measured metric is called on an axis; its formula, from the table of metrics, stands behind it.
NAMES = {
    "stream_grad": "stream gradient",
    "grad_norm": "weight gradient",
    "clipped_norm": "clipped gradient",
    "update_ratio": "update",
    "act_rms": "activation RMS",
    "mean_share": "mean share",
    "weight_norm": "weights",
    "trunk_share": "share along the trunk",
}
LABELS = {LOSS: "loss (nats)", **{name: f"{words} ${METRICS[name].tex}$" for name, words in NAMES.items()}}
# Okabe and Ito's, which stay apart for every kind of colour vision; the dashes do so without colour.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":")
MOST_NAMED = 7  # curves with a legend; more get a colour bar
MOST_CURVES = 48
MOST_TICKS = 16
COLUMNS = 16
FIRST_PIECE = PYRAMID_FACTOR * COLUMNS  # steps that are drawn one by one
LEGEND: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
SITE = "module"  # where what is charted has a name of its own
PARTS = ("steps", "mean", "nonfinite")  # of a window, for a curve
TROUBLE, ZERO = "#d55e00", "#7f7f7f"


@dataclass(frozen=True, slots=True)
class Curves:
    """One metric: `values` [steps, points of depth], and where there is a non-finite one."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    bad: Flags


def write_figure(run: RunReader, choice: Choice, file: IO[bytes], kind: str) -> None:
    """Draw the chosen metrics into `file` as "svg" or "png"; raises ExportError if matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExportError(MISSING) from error
    style: dict[Any, Any] = {
        "svg.hashsalt": "gradtui",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.5,
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name the font cannot write
        figure = Figure(figsize=(8.5, 3.2 * len(choice.metrics)), layout="constrained")
        rows = figure.subplots(len(choice.metrics), 2, squeeze=False, width_ratios=(1, 1.25))
        for (left, right), metric in zip(rows, choice.metrics, strict=True):
            if metric == LOSS:
                left.set_axis_off()
                _draw_loss(right, run, choice)
            else:
                _draw_depth(left, run, choice, metric)
                _draw_steps(figure, right, run, choice, metric)
        figure.suptitle(_title(run), parse_math=False)
        metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        figure.savefig(file, format=kind, dpi=200, metadata=metadata)


def default_metric(run: RunReader) -> str:
    """The metric that shows the flow best: the stream's gradient, else the weights', else the run's first."""
    return next((name for name in ("stream_grad", "grad_norm") if name in run.metrics), run.metrics[0])


def _title(run: RunReader) -> str:
    facts = run.facts
    seed = facts.get("seed")
    return f"{facts.get('name') or run.path.stem}{'' if seed is None else f', seed {seed}'}"


def _depth(run: RunReader, metric: str) -> tuple[Depth, str]:
    """The points of depth and what they are; every site by itself in a model that has no depth."""
    depth = depth_of(run.sites, metric)
    if depth.points <= 1:
        return each_site(run.sites), SITE
    if metric in STREAM_METRICS:
        return depth, "stream point $l$"
    if metric == TRUNK_SHARE:
        return depth, "layer (feed-forward: half a layer on)"
    modules = all(len(group) == 1 and run.sites[group[0]].kind == "module" for group in depth.groups)
    return depth, SITE if modules else "layer"


def _name(run: RunReader, depth: Depth, k: int) -> str:
    """The name of a point of depth; a dollar sign in it begins no formula."""
    return run.sites[depth.groups[k][0]].name.replace("$", r"\$")


def _last_measured(run: RunReader, choice: Choice, metric: str) -> Snapshot:
    """The last chosen step, or that at which a sampled `metric` was measured last; raises ExportError."""
    first = step = run.nearest_step(choice.stop - 1)
    for _ in range(SAMPLE_EVERY):
        snapshot = _frame(run, step)
        row = run.metrics.index(metric)
        if (~np.isnan(snapshot.values[row]) | snapshot.nonfinite[row]).any():
            return snapshot
        if step <= max(choice.start, run.first_step):
            break
        step = run.nearest_step(step - 1)
    return _frame(run, first)


def _frame(run: RunReader, step: int) -> Snapshot:
    snapshot = run.frame(step)
    if snapshot is None:
        raise ExportError(f"{run.path} drops steps while it is read; export it again")
    return snapshot


def _draw_depth(axes: Axes, run: RunReader, choice: Choice, metric: str) -> None:
    """The metric over depth, at the last chosen step."""
    depth, what = _depth(run, metric)
    snapshot = _last_measured(run, choice, metric)
    rows = [run.metrics.index(metric)]
    weights = snapshot.values[[run.metrics.index("weight_norm")]] if "weight_norm" in run.metrics else None
    values, bad = by_depth(depth, metric, snapshot.values[rows], weights, snapshot.nonfinite[rows])
    x = np.array(depth.positions)
    log = _scale(axes, values)
    shown = ~np.isnan(values[0]) | bad[0]  # passes over what does not exist, breaks at what cannot be drawn
    y = np.where(bad[0] | ((values[0] <= 0) & log), np.nan, values[0])
    markers: dict[str, Any] = {"marker": "o", "markersize": 3.5} if depth.points <= 60 else {}
    axes.plot(x[shown], y[shown], color=COLORS[0], linewidth=1.2, **markers)
    _mark(axes, x[bad[0]], x[(values[0] == 0) & ~bad[0]] if log else x[:0])
    _stacks(axes, depth)
    axes.set_xlabel(what)
    axes.set_ylabel(LABELS.get(metric, metric), parse_math=metric in LABELS)
    axes.set_title(f"step {snapshot.frame.step}", fontsize=9)
    axes.locator_params(axis="x", integer=True)
    if what == SITE and depth.points <= MOST_TICKS:
        axes.set_xticks(x, [_name(run, depth, k) for k in range(depth.points)], rotation=60, ha="right")


def _draw_steps(figure: Figure, axes: Axes, run: RunReader, choice: Choice, metric: str) -> None:
    """Each point of depth over the steps; in colours of their order where a legend would be too long."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    depth, what = _depth(run, metric)
    curves = _curves(run, choice, metric, depth)
    there = np.flatnonzero((~np.isnan(curves.values) | curves.bad).any(axis=0))
    log = _scale(axes, curves.values)
    few = len(there) <= MOST_NAMED
    drawn = there if len(there) <= MOST_CURVES else there[np.linspace(0, len(there) - 1, MOST_CURVES).astype(int)]
    scale = ScalarMappable(Normalize(0, max(1, depth.positions[-1])), "viridis")
    for number, k in enumerate(drawn):
        y = np.where(curves.bad[:, k] | ((curves.values[:, k] <= 0) & log), np.nan, curves.values[:, k])
        color = COLORS[number % len(COLORS)] if few else scale.to_rgba(depth.positions[k])
        label = _name(run, depth, int(k)) if what == SITE else f"{depth.positions[k]:g}"
        dash = DASHES[number % len(DASHES)] if few else "-"
        axes.plot(curves.steps + 1, y, dash, color=color, linewidth=1.1 if few else 0.8, label=f"\u200b{label}")
    zeros = (curves.values == 0).any(axis=1) if log else np.zeros(len(curves.steps), dtype=bool)
    _mark(axes, curves.steps[curves.bad.any(axis=1)] + 1, curves.steps[zeros] + 1)
    _step_axis(axes, choice.stop - choice.start > FIRST_PIECE)
    if few and len(drawn):
        axes.legend(title=what, fontsize=7, title_fontsize=7, **LEGEND)
    elif len(drawn):
        bar = figure.colorbar(scale, ax=axes, pad=0.02, ticks=MaxNLocator(integer=True))
        bar.set_label(what if len(drawn) == len(there) else f"{what} ({MOST_CURVES} of {len(there)} drawn)")


def _draw_loss(axes: Axes, run: RunReader, choice: Choice) -> None:
    windows = [run.loss_window(*piece, COLUMNS) for piece in _pieces(run, choice)]
    steps, mean, bad = (np.concatenate([getattr(w, name) for w in windows]) for name in PARTS)
    axes.plot(steps + 1, np.where(bad, np.nan, mean), color=COLORS[0], linewidth=1.1)
    _mark(axes, steps[bad] + 1, steps[:0])
    _step_axis(axes, choice.stop - choice.start > FIRST_PIECE)
    axes.set_ylabel(LABELS[LOSS])


def _curves(run: RunReader, choice: Choice, metric: str, depth: Depth) -> Curves:
    windows = [run.window(metric, *piece, COLUMNS) for piece in _pieces(run, choice)]
    steps, mean, bad = (np.concatenate([getattr(w, name) for w in windows]) for name in PARTS)
    weights = None
    if metric == "update_ratio" and "weight_norm" in run.metrics:
        weights = np.concatenate(
            [run.window("weight_norm", *piece, COLUMNS).mean for piece in _pieces(run, choice)]
        )
    return Curves(steps, *by_depth(depth, metric, mean, weights, bad))


def _pieces(run: RunReader, choice: Choice) -> list[tuple[int, int]]:
    """Ranges that cover the chosen steps, each sixteen times as long: on a logarithmic axis all are as wide.

    Each ends with a whole bucket of those it is read in, so that nothing beyond the chosen steps is part of it.
    """
    pieces, start, length = [], choice.start, FIRST_PIECE
    while start < choice.stop:
        end = min(choice.stop, (start // length + 1) * length)
        if end <= run.last_step:
            end -= end % PYRAMID_FACTOR ** level_of(end - start, COLUMNS)
        pieces.append((start, end))
        start, length = end, length * PYRAMID_FACTOR
    return pieces


def _scale(axes: Axes, values: NDArray[np.float64]) -> bool:
    """Logarithmic where there is anything to show on it; True then."""
    with np.errstate(invalid="ignore"):
        log = bool((values[np.isfinite(values)] > 0).any())
    axes.set_yscale("log" if log else "linear")
    return log


def _step_axis(axes: Axes, means: bool) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("step + 1 (means of several later on)" if means else "step + 1")


def _mark(axes: Axes, troubled: NDArray[Any], zero: NDArray[Any]) -> None:
    """What a logarithmic line cannot show stands at the edges: NaN and Inf at the top, zero at the bottom."""
    across = axes.get_xaxis_transform()
    style: dict[str, Any] = {"linestyle": "none", "transform": across, "clip_on": False, "zorder": 5}
    if troubled.size:
        axes.plot(troubled, np.ones(troubled.size), marker="x", markersize=4.5, color=TROUBLE, **style)
        axes.annotate(
            "× NaN or Inf", (1, 1), (0, 6), "axes fraction", "offset points",
            color=TROUBLE, fontsize=7, ha="right",
        )  # fmt: skip
    if zero.size:
        axes.plot(zero, np.zeros(zero.size), marker="o", markersize=4, color=ZERO, fillstyle="none", **style)
        axes.annotate(
            "○ exactly 0", (1, 0), (0, 4), "axes fraction", "offset points", color=ZERO, fontsize=7, ha="right"
        )


def _stacks(axes: Axes, depth: Depth) -> None:
    """A line, and their names, where one stack ends and the next begins."""
    names = depth.stacks
    for k in range(1, len(names)):
        if names[k] != names[k - 1]:
            axes.axvline(k - 0.5, color="#7f7f7f", linewidth=0.8, linestyle=":")
            across = axes.get_xaxis_transform()
            for x, name, side in ((k - 0.6, names[k - 1], "right"), (k - 0.4, names[k], "left")):
                axes.text(x, 0.97, name, transform=across, fontsize=7, ha=side, va="top", parse_math=False)
