"""nGPT: a step of learned size on the sphere (Loshchilov et al. 2024, arXiv 2410.01131)."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import normalize

from gradtui.zoo.ngpt import Scale, UnitEmbedding, UnitHead, normalize_
from gradtui.zoo.topologies.base import NormMaker, Sublayer, SublayerPosition


class NGPT(Sublayer):
    """x ← N(x + α ⊙ (N(f(x)) − x)), N(x) = x/‖x‖: a step of learned size α towards f(x) on the sphere.

    Loshchilov et al. 2024, eqs. 10 and 11. |α| is one number for each channel, 0.05 at the start. RMS(x) = 1/√D.
    """

    Embedding = UnitEmbedding
    Head = UnitHead

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, nn.Identity, position)
        self.alpha = Scale(position.config.width, start=0.05, stored=1 / math.sqrt(position.config.width))

    def forward(self, x: Tensor) -> Tensor:
        f, alpha = self.branch, self.alpha().abs()
        y = normalize(f(x), dim=-1)
        x = self.trunk(x)
        return normalize(x + alpha * (y - x), dim=-1)

    def start(self) -> None:
        self.after_step()

    def after_step(self) -> None:
        """Make every vector of the branch's matrices one of length 1."""
        for name, module in self.branch.named_children():
            if isinstance(module, nn.Linear):
                normalize_(module.weight, dim=0 if name == "out" else 1)
