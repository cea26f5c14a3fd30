"""What the key `m` cycles through: metrics of a run, what follows from them, and what modules tell. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtui.metrics import TRUNK_SHARE

Kind = Literal["metric", "gain", "spread", "reading", "weights"]

GAIN = "local_gain"
GRADIENT = "stream_grad"
ACTIVATION = "act_rms"
# Readings of three numbers are percentiles over tokens: the 5th, the 50th, the 95th.
LOW, MIDDLE, HIGH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Measure:
    """One entry of the cycle.

    `sources` are metrics of the run file for the kinds metric and gain, else readings; the first must be there.
    A "gain" is a metric at a point of depth over the same at the next; a "spread" shows percentiles of a quantity
    before a norm and after it; "weights" are a row for each sublayer. `beside` is what the second pane shows then.
    `lines` are values that the axis holds in any case, drawn across.
    """

    name: str
    kind: Kind = "metric"
    sources: tuple[str, ...] = ()
    log: bool = False
    beside: str = ACTIVATION
    lines: tuple[float, ...] = ()

    @property
    def told(self) -> bool:
        """Whether it is made of readings, and not of the metrics that every site has."""
        return self.kind in ("spread", "reading", "weights")

    @property
    def needs(self) -> tuple[str, ...]:
        """The metrics or readings that it is made of."""
        return self.sources or (self.name,)


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(GRADIENT, log=True),
        Measure("grad_norm", log=True),
        Measure("update_ratio", log=True),
        Measure(ACTIVATION),
        Measure("mean_share", log=True),
        Measure(GAIN, "gain", (GRADIENT,), log=True, beside=TRUNK_SHARE, lines=(1.0,)),
        Measure(TRUNK_SHARE, beside=GAIN, lines=(0.0, 1.0)),
        Measure("routed", "spread", ("routed_rms", "latent_rms"), log=True, beside="out_rms"),
        Measure("out_rms", "reading", log=True, beside="out_grad"),
        Measure("out_grad", "reading", log=True, beside="out_rms"),
        Measure("load", "reading", beside="routed", lines=(1.0,)),
        Measure("heads", "spread", ("head_rms", "normed_head_rms"), log=True),
        Measure("depth_weights", "weights", ("depth",)),
    )
}
