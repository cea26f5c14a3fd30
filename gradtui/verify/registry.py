"""What a claim can measure without a training run, by name. Torch-free: only a worker resolves the targets."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """Where it lives ("module:attribute"), what its number is, and whether it is about a preset.

    An invariant is called with a preset or None, and a seed; a benchmark with its arguments and a seed.
    """

    target: str
    what: str
    preset: bool = False


INVARIANTS: dict[str, Measured] = {
    "sum_of_branches": Measured(
        "gradtui.verify.invariants:sum_of_branches", "‖x_L − (x_0 + Σf)‖ / ‖x_L‖ at step 0", preset=True
    ),
    "trunk_share": Measured(
        "gradtui.verify.invariants:trunk_share",
        "‖∂L/∂x along the trunk‖ / ‖∂L/∂x of the next sublayer‖, least of all sublayers at step 0",
        preset=True,
    ),
    "trunk_share_through": Measured(
        "gradtui.verify.invariants:trunk_share_through",
        "product over all sublayers of the trunk's share of the gradient at step 0",
        preset=True,
    ),
    "lost_directions": Measured(
        "gradtui.verify.invariants:lost_directions", "directions that the norm's Jacobian removes", preset=True
    ),
    "scale_invariance": Measured(
        "gradtui.verify.invariants:scale_invariance", "|N(cx) − N(x)|, largest for c = 10 and c = 100", preset=True
    ),
    "centred_rms_twin": Measured(
        "gradtui.verify.invariants:centred_rms_twin",
        "|logits of the model − of its centred RMSNorm twin|, largest, float64",
        preset=True,
    ),
}

BENCHMARKS: dict[str, Measured] = {
    "norm_time": Measured("gradtui.verify.benchmarks:norm_time", "time of RMSNorm / time of LayerNorm"),
    "norm_bytes": Measured("gradtui.verify.benchmarks:norm_bytes", "bytes moved by RMSNorm / by LayerNorm"),
}
# How a benchmark's norms are run: torch's own operators, the lesson's formulas one operator at a time, and those
# formulas compiled into one kernel.
MODES = ("torch", "formula", "compiled")
PASSES = ("forward", "backward")


def resolve(measured: Measured) -> Any:
    """The function behind an entry."""
    module, _, attribute = measured.target.partition(":")
    return getattr(import_module(module), attribute)
