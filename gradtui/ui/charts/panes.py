"""The panes of the lab: what each shows, and under which title. A new chart is one entry of `PANE_SPECS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gradtui.charts.heatmap import Mode, render_heatmap
from gradtui.charts.render import render_chart
from gradtui.charts.spec import HeatMap, Lines, Painter
from gradtui.metrics import METRICS, Kind
from gradtui.ui.charts.context import ChartBuilder, ChartContext, Figure
from gradtui.ui.charts.loss import loss_lines
from gradtui.ui.charts.measured import depth_chart, heat_map, site_chart
from gradtui.ui.charts.readings import reading_chart, reading_map, spread_chart, weights_chart, weights_map
from gradtui.ui.session.snapshot import ACTIVATION, LabSnapshot
from gradtui.ui.text.empty import emptiness, missing
from gradtui.ui.text.explain import measured_at

DEPTH_BUILDERS: dict[Kind, ChartBuilder] = {
    "measured": depth_chart,
    "gain": depth_chart,
    "reading": reading_chart,
    "spread": spread_chart,
    "weights": weights_chart,
}
MAP_BUILDERS: dict[Kind, ChartBuilder] = {
    "measured": heat_map,
    "gain": heat_map,
    "reading": reading_map,
    "spread": reading_map,
    "weights": weights_map,
}


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane's title and subtitle, and what is painted between them."""

    title: str
    subtitle: str
    paint: Painter


def draw(figure: Figure, width: int, height: int, mode: Mode) -> Lines:
    """A figure in `width` × `height` cells."""
    if isinstance(figure, HeatMap):
        return render_heatmap(figure, width, height, mode)
    return render_chart(figure, width, height)


def context_of(snapshot: LabSnapshot, metric: str, *, log: bool) -> ChartContext:
    """What the charts of `metric` are built from."""
    session, words = snapshot.session, snapshot.words
    empty = missing(snapshot.lane, metric, words) or emptiness(session, snapshot.lane, words)
    return ChartContext(
        tuple(session.shown),
        METRICS[metric],
        session.cursor,
        log,
        snapshot.view.log_steps,
        snapshot.mode,
        words,
        empty,
    )


def depth_pane(snapshot: LabSnapshot) -> Pane:
    """The chosen metric by depth."""
    metric = snapshot.metric
    log = snapshot.view.is_log(metric)
    subtitle = (_measured_at(snapshot, metric), scale_name(snapshot, log), "m y")
    return Pane(
        _by_layer_title(snapshot, metric),
        " · ".join(text for text in subtitle if text),
        _painter(DEPTH_BUILDERS, context_of(snapshot, metric, log=log)),
    )


def companion_pane(snapshot: LabSnapshot) -> Pane:
    """By depth, what belongs beside the chosen metric."""
    words, metric, cursor = snapshot.words, snapshot.companion, snapshot.session.cursor
    step = "" if cursor is None else words("header.history", step=cursor)
    return Pane(
        words("pane.rms") if metric == ACTIVATION else _by_layer_title(snapshot, metric),
        _measured_at(snapshot, metric) or step,
        _painter(DEPTH_BUILDERS, context_of(snapshot, metric, log=METRICS[metric].log)),
    )


def heat_pane(snapshot: LabSnapshot) -> Pane:
    """The chosen metric of the focused lane by depth and step."""
    words, lane, metric = snapshot.words, snapshot.lane, METRICS[snapshot.metric]
    name = words(f"heat.{metric.name}" if metric.kind == "spread" else f"metric.{metric.name}")
    title, steps = words("pane.heat", metric=name), steps_name(snapshot)
    if metric.kind == "weights":
        title, steps = words("pane.weights"), _measured_at(snapshot, metric.name)
    whose = lane.name(words.language) if lane else ""
    context = context_of(snapshot, metric.name, log=snapshot.view.is_log(metric.name))
    return Pane(title, " · ".join(text for text in (whose, steps) if text), _painter(MAP_BUILDERS, context))


def loss_pane(snapshot: LabSnapshot) -> Pane:
    """Loss over steps, and the learning rate."""
    context = context_of(snapshot, snapshot.metric, log=False)
    return Pane(snapshot.words("pane.loss"), steps_name(snapshot), partial(loss_lines, context))


def site_pane(snapshot: LabSnapshot, site: str) -> Pane:
    """The chosen metric of one site over the steps, under the table of sites."""
    words, metric = snapshot.words, snapshot.metric
    log = snapshot.view.is_log(metric)
    context = context_of(snapshot, metric, log=log)
    return Pane(
        words("pane.site", name=site, metric=words(f"metric.{metric}")),
        f"{scale_name(snapshot, log)} · m y x",
        lambda width, height: draw(site_chart(context, width, site), width, height, context.mode),
    )


# By the names that the layout has for them (`view_state.PANES`).
PANE_SPECS: dict[str, Callable[[LabSnapshot], Pane]] = {
    "depth": depth_pane,
    "companion": companion_pane,
    "heat": heat_pane,
    "loss": loss_pane,
}


def steps_name(snapshot: LabSnapshot) -> str:
    """How the axis of steps is divided, and the key that changes it."""
    return f"{snapshot.words('pane.logsteps')} · x" if snapshot.view.log_steps else "x"


def scale_name(snapshot: LabSnapshot, log: bool) -> str:
    """Whether values are on a logarithmic axis, in words."""
    return snapshot.words("pane.log" if log else "pane.linear")


def _by_layer_title(snapshot: LabSnapshot, metric: str) -> str:
    return snapshot.words("pane.depth", metric=snapshot.words(f"metric.{metric}"))


def _measured_at(snapshot: LabSnapshot, metric: str) -> str:
    """The step of what is measured at some steps only."""
    step = measured_at(snapshot.lane, metric, snapshot.session.cursor)
    return "" if step is None else snapshot.words("pane.at", step=step)


def _painter(builders: dict[Kind, ChartBuilder], context: ChartContext) -> Painter:
    build = builders[context.metric.kind]
    return lambda width, height: draw(build(context, width), width, height, context.mode)
