"""Normalisations, each written as the formula in the lesson. Forward is the definition, not a fused kernel.

Legend: B batch, T time, D width. Every norm works on the last axis of any tensor (…, D) and keeps its shape.
ε stands inside the root in both LayerNorm and RMSNorm, and is always passed, because torch's two defaults
differ (1e-5 and the dtype's machine epsilon).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """(x − μ) / √(σ² + ε) · γ + β, with μ and σ² over the width (Ba, Kiros & Hinton 2016, eqs 3-4).

    Its Jacobian (γ = 1, ε → 0) is (1/σ)(I − 11ᵀ/d − zzᵀ/d) with z = (x − μ)/σ: gradients along the constant
    vector and along z itself are removed, all others are divided by σ.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        mu_BT1 = x_BTD.mean(dim=-1, keepdim=True)
        centred_BTD = x_BTD - mu_BT1
        variance_BT1 = centred_BTD.square().mean(dim=-1, keepdim=True)
        return centred_BTD / torch.sqrt(variance_BT1 + self.eps) * self.gamma + self.beta


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · γ: no mean, no β (Zhang & Sennrich 2019, eq. 4, with ε added inside the root).

    Its Jacobian (γ = 1, ε → 0) is (1/r)(I − x̂x̂ᵀ) with r = RMS(x): only the gradient along x is removed.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        mean_square_BT1 = x_BTD.square().mean(dim=-1, keepdim=True)
        return x_BTD / torch.sqrt(mean_square_BT1 + self.eps) * self.gamma


class NoNorm(nn.Module):
    """x, unchanged: what the other two are compared with. Takes the same arguments and ignores them."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD


class DyT(nn.Module):
    """γ ⊙ tanh(αx) + β, α one number, 0.5 at the start (Zhu et al. 2025, arXiv 2503.10622, eq. 1).

    Elementwise, so no norm at all: it is not blind to scale, and its Jacobian αγ(1 − tanh²) does not fall as
    1/RMS(x) but dies where α|x| ≫ 1.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.gamma * torch.tanh(self.alpha * x_BTD) + self.beta


class Derf(nn.Module):
    """γ ⊙ erf(αx + s) + β, α = 0.5 and s = 0 at the start (arXiv 2512.10938): as DyT, with another curve."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.shift = nn.Parameter(torch.tensor(0.0))
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.gamma * torch.erf(self.alpha * x_BTD + self.shift) + self.beta
