"""The table of metrics: what is measured of a model, and what is made of that.

Every part of the program that needs to know a metric reads it here: run files, the probe, alarms, the charts, the
table of sites, question packs, exports, the handbook. A new metric is one entry of `METRICS`, the code that
computes it (`gradtui/probe/accumulator.py` for a measured one), and its words in `gradtui/i18n/*.toml`.

Three sources feed the table. *Measured* metrics have one value per site in each frame of a run file. A *gain* is
made of a measured one. *Readings* are short vectors that a module reports of itself, such as its experts' load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a metric is drawn over depth:
#   measured  one value per site and step
#   gain      the measured metric at one depth divided by the same at the next depth
#   reading   a vector per site: percentiles over tokens, or one number
#   spread    two readings: percentiles before a norm and after it
#   weights   a reading with one weight per source, a row for each sublayer
Kind = Literal["measured", "gain", "reading", "spread", "weights"]

# Whose value it is, and so how depth is counted:
#   stream    of the residual stream x_l that leaves a site: L + 1 points x_0 … x_L
#   site      of a site's own parameters: one point per layer, made of all sites in it
#   sublayer  of a mixer or feed-forward: two points per layer
Owner = Literal["stream", "site", "sublayer"]

# Whose runs hold it: of every model, of one whose gradients are clipped, or only of the zoo's models.
Recorded = Literal["always", "clipping", "zoo", "derived"]

# Which part of a training step computes it; a value that is not finite began there.
Phase = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    `symbol` is its formula as text, `tex` the same for matplotlib, `unit` what one of it is ("1": a pure number;
    "nats" for the gradient of a loss in nats, where weights and activations are pure numbers).

    `sources` are the metrics or readings that it is made of (empty: itself); the first must be in a run for the
    metric to be shown. `default` says that a probe measures it unless told otherwise; `sampled` that it is then
    measured only at sampled steps (`is_sampled_step`), since at every step it would cost more than it is worth.
    `selectable` metrics are those that the lab cycles through. `log` is the scale that suits it, `companion` the
    metric in the second pane, `guide_lines` are values that are drawn across the chart.
    """

    name: str
    symbol: str
    tex: str = ""
    unit: str = "1"
    kind: Kind = "measured"
    owner: Owner = "site"
    recorded: Recorded = "always"
    phase: Phase = "update"
    sources: tuple[str, ...] = ()
    default: bool = True
    sampled: bool = False
    selectable: bool = True
    log: bool = False
    companion: str = "act_rms"
    guide_lines: tuple[float, ...] = ()

    @property
    def is_reading(self) -> bool:
        """Whether it is made of readings, and not of the values that every site has."""
        return self.kind in ("reading", "spread", "weights")

    @property
    def needs(self) -> tuple[str, ...]:
        """The measured metrics, or the readings, that it is made of."""
        return self.sources or (self.name,)


# In the order in which the lab shows them: what one looks for first stands first.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="stream_grad",
            symbol="‖∂L/∂x_l‖₂",
            tex=r"\Vert\partial L/\partial x_l\Vert_2",
            unit="nats",
            owner="stream",
            phase="backward",
            log=True,
        ),
        Metric(
            name="grad_norm",
            symbol="‖∂L/∂θ‖₂",
            tex=r"\Vert\partial L/\partial\theta\Vert_2",
            unit="nats",
            phase="backward",
            log=True,
        ),
        Metric(
            name="clipped_norm",
            symbol="‖∂L/∂θ‖₂ after clipping",
            tex=r"\Vert\partial L/\partial\theta\Vert_2",
            unit="nats",
            recorded="clipping",
            default=False,
            selectable=False,
            log=True,
        ),
        Metric(
            name="update_ratio",
            symbol="‖Δθ‖₂ / ‖θ‖₂",
            tex=r"\Vert\Delta\theta\Vert_2\,/\,\Vert\theta\Vert_2",
            sampled=True,
            log=True,
        ),
        Metric(
            name="act_rms",
            symbol="√mean(x_l²)",
            tex=r"\sqrt{\mathrm{mean}(x_l^2)}",
            owner="stream",
            phase="forward",
        ),
        Metric(
            name="mean_share",
            symbol="Σμ² / ΣRMS²",
            tex=r"\Sigma\mu^2\,/\,\Sigma r^2",
            owner="stream",
            phase="forward",
            default=False,
            log=True,
        ),
        Metric(
            name="weight_norm",
            symbol="‖θ‖₂",
            tex=r"\Vert\theta\Vert_2",
            sampled=True,
            selectable=False,
        ),
        Metric(
            name="local_gain",
            symbol="‖∂L/∂x_l‖₂ / ‖∂L/∂x_{l+1}‖₂",
            kind="gain",
            owner="stream",
            recorded="derived",
            sources=("stream_grad",),
            log=True,
            companion="trunk_share",
            guide_lines=(1.0,),
        ),
        Metric(
            name="trunk_share",
            symbol="‖g_trunk‖₂ / ‖∂L/∂y‖₂",
            tex=r"\Vert g_\mathrm{trunk}\Vert_2\,/\,\Vert\partial L/\partial y\Vert_2",
            owner="sublayer",
            recorded="zoo",
            default=False,
            sampled=True,
            companion="local_gain",
            guide_lines=(0.0, 1.0),
        ),
        Metric(
            name="routed",
            symbol="RMS(u), RMS(N(u))",
            kind="spread",
            owner="sublayer",
            recorded="zoo",
            sources=("routed_rms", "latent_rms"),
            log=True,
            companion="out_rms",
        ),
        Metric(
            name="out_rms",
            symbol="RMS(W↑ N(u))",
            kind="reading",
            owner="sublayer",
            recorded="zoo",
            log=True,
            companion="out_grad",
        ),
        Metric(
            name="out_grad",
            symbol="‖∂L/∂W↑‖₂",
            unit="nats",
            kind="reading",
            owner="sublayer",
            recorded="zoo",
            log=True,
            companion="out_rms",
        ),
        Metric(
            name="load",
            symbol="max_e n_e / mean_e n_e",
            kind="reading",
            owner="sublayer",
            recorded="zoo",
            companion="routed",
            guide_lines=(1.0,),
        ),
        Metric(
            name="heads",
            symbol="RMS(Sᵀq), RMS(N(Sᵀq))",
            kind="spread",
            owner="sublayer",
            recorded="zoo",
            sources=("head_rms", "normed_head_rms"),
            log=True,
        ),
        Metric(
            name="depth_weights",
            symbol="α_i",
            kind="weights",
            owner="sublayer",
            recorded="zoo",
            sources=("depth",),
        ),
    )
}

CLIPPED = "clipped_norm"
TRUNK_SHARE = "trunk_share"
GAIN = "local_gain"

MEASURED: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.kind == "measured")
SITE_METRICS: tuple[str, ...] = tuple(name for name in MEASURED if METRICS[name].recorded == "always")
"""What can be measured of any model, clipped or not."""
PROBE_METRICS: tuple[str, ...] = (*SITE_METRICS, CLIPPED)
"""What the public probe can be asked for."""
DEFAULT_METRICS: tuple[str, ...] = tuple(name for name in SITE_METRICS if METRICS[name].default)
"""What a probe measures where nothing else is asked for; the clipped norm is added where gradients are clipped."""
SAMPLED_METRICS: tuple[str, ...] = tuple(name for name in DEFAULT_METRICS if METRICS[name].sampled)
"""Of those, what is measured at sampled steps only."""
STREAM_METRICS: frozenset[str] = frozenset(name for name in MEASURED if METRICS[name].owner == "stream")
SELECTABLE: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.selectable)
"""What the lab cycles through, and what a question may show."""

# Readings of three numbers are percentiles over tokens: the 5th, the 50th, the 95th.
LOW, MIDDLE, HIGH = 0, 1, 2

# Sampled steps: the first measured ones, where things happen, and every tenth later.
FIRST_SAMPLED, SAMPLE_EVERY = 20, 10
FIRST_SAMPLED_BY_PROBE = 5


def is_sampled_step(count: int, first: int = FIRST_SAMPLED) -> bool:
    """Whether the measured step number `count`, from 0, is a sampled one: one of the `first`, or a tenth."""
    return count < first or count % SAMPLE_EVERY == 0
