"""Topologies that differ only in where the norm stands."""

from __future__ import annotations

import math

from torch import Tensor, nn

from gradtui.zoo.topologies.base import NormMaker, Sublayer, SublayerPosition


class Post(Sublayer):
    """x ← N(x + f(x)): the norm stands on the trunk (Vaswani et al. 2017, §3.1)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x)
        return N(self.trunk(x) + y)  # type: ignore[no-any-return]


class Pre(Sublayer):
    """x ← x + f(N(x)): the norm stands on the branch, the trunk only adds (Xiong et al. 2020, Table 1)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x))
        return self.trunk(x) + y  # type: ignore[no-any-return]


class NoResidual(Sublayer):
    """x ← f(N(x)): the same stack without its trunk, as before residual connections (He et al. 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        return f(N(x))  # type: ignore[no-any-return]


class Sandwich(Sublayer):
    """x ← x + N′(f(N(x))): a norm before and after f, none on the trunk.

    Sandwich-LN (Ding et al. 2021, arXiv 2105.13290), Peri-LN (Kim et al. 2025, arXiv 2502.02732), Gemma 2 and 3.
    Each branch adds a vector of RMS 1, so RMS(x_k) ≈ √(RMS(x_0)² + k) after k sublayers at step 0.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        self.output_norm = norm()

    def forward(self, x: Tensor) -> Tensor:
        f, N, N2 = self.branch, self.norm, self.output_norm
        y = N2(f(N(x)))
        return self.trunk(x) + y  # type: ignore[no-any-return]


class OutputNorm(Sublayer):
    """x ← x + N(f(x)): the norm at the end of the branch alone (OLMo 2, arXiv 2501.00656).

    f reads the stream as it is, so the logits of attention grow with RMS(x)²: it ships with qk_norm = "full".
    """

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = N(f(x))
        return self.trunk(x) + y  # type: ignore[no-any-return]


class HybridNorm(Sublayer):
    """Mixer: x ← x + f(x), with RMSNorm on q, k and v of each head. Feed-forward: x ← N(x) + f(N(x)).

    Zhuo et al. 2025, arXiv 2503.04598. The norms on q, k, v are the attention's (`parts.Topology.norms_qkv`).
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm if position.kind == "feedforward" else nn.Identity, position)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x))
        return N(self.trunk(x)) + y  # type: ignore[no-any-return]


class MixLN(Sublayer):
    """x ← N(x + f(x)) in the first quarter of the layers, x ← x + f(N(x)) in the others.

    Li et al. 2024, arXiv 2412.13795, with the paper's a = 0.25: the first ⌊aL⌋ layers are Post.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        self.post = position.layer < math.floor(0.25 * position.layers)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x if self.post else N(x))
        x = self.trunk(x)
        return N(x + y) if self.post else x + y  # type: ignore[no-any-return]
