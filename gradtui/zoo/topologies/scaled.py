"""Topologies that scale the trunk or the branch, by a constant or by a weight."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gradtui.zoo.topologies.base import NormMaker, Sublayer, SublayerPosition


class DeepNorm(Sublayer):
    """x ← N(αx + f(x)), α = (2L)^¼, and the weights of f that carry values start times β = (8L)^−¼.

    Wang et al. 2022, arXiv 2203.00555, fig. 2: the constants of a decoder-only model. β is for the
    feed-forward's matrices, W_V and W_O, not for W_Q and W_K.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        self.alpha = (2 * position.layers) ** 0.25
        self.beta = (8 * position.layers) ** -0.25

    @torch.no_grad()
    def start(self) -> None:
        for weight in carriers(self.branch):
            weight *= self.beta

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x)
        return N(self.alpha * self.trunk(x) + y)  # type: ignore[no-any-return]


def carriers(branch: nn.Module) -> Iterable[Tensor]:
    """The matrices of a branch that its output is linear in, or close to it: all that do not make logits."""
    if hasattr(branch, "carriers"):
        return branch.carriers()  # type: ignore[no-any-return, operator]
    return [module.weight for module in branch.modules() if isinstance(module, nn.Linear)]


class LayerNormScaling(Sublayer):
    """x ← x + f(N(x)/√ℓ), ℓ = 1 … L the layer (Sun et al. 2025, arXiv 2502.05795, "The Curse of Depth").

    Pre-norm whose branches read less and less, so that the stream's variance grows like ln ℓ instead of ℓ.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        self.scale = 1 / math.sqrt(position.layer + 1)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x) * self.scale)
        return self.trunk(x) + y  # type: ignore[no-any-return]


class ReZero(Sublayer):
    """x ← x + αf(x), one α a sublayer, 0 at the start, no norm (Bachlechner et al. 2020, arXiv 2003.04887, eq. 1).

    At step 0 every layer is the identity: all ‖∂L/∂x_l‖ are the same number, all branch gradients exactly 0.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, nn.Identity, position)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        f = self.branch
        y = self.alpha * f(x)
        return self.trunk(x) + y  # type: ignore[no-any-return]


class Keel(Sublayer):
    """x ← N′(αx + f(N(x))), α = 2L the number of sublayers: a Post-LN whose trunk outweighs its branches.

    Arxiv 2601.19895. The first mixer has no N′ (it is plain Pre), and the first layer no α.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        self.alpha = 1 if position.layer == 0 else 2 * position.layers
        self.outer_norm = norm() if position.index > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        f, N, N2 = self.branch, self.norm, self.outer_norm
        y = f(N(x))
        return N2(self.alpha * self.trunk(x) + y)  # type: ignore[no-any-return]
