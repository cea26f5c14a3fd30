"""Branches that work on each position alone.

Legend: B batch, T time, D width, F hidden. Biases on everywhere, no dropout.
A branch's last matrix is called `out`: the scaled initialisation finds it by that name.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from gradtui.presets import ModelConfig


class ReLU(nn.Module):
    """W₂ relu(W₁x + b₁) + b₂ (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden_width)
        self.out = nn.Linear(config.hidden_width, config.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(relu(self.up(x_BTD)))  # type: ignore[no-any-return]


class GELU(nn.Module):
    """W₂ gelu(W₁x + b₁) + b₂ with the exact gelu(x) = x Φ(x), not the tanh fit (Hendrycks & Gimpel 2016)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden_width)
        self.out = nn.Linear(config.hidden_width, config.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(gelu(self.up(x_BTD)))  # type: ignore[no-any-return]


class SwiGLU(nn.Module):
    """W₂ (silu(W_g x) ⊙ W₁x) (Shazeer 2020, eq. 6).

    It has three matrices where the others have two, so F is ⅔ of the configured hidden width, as in the
    paper's §3: the parameter count stays within a percent or two of ReLU's, and curves compare like with like.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = max(1, round(config.hidden_width * 2 / 3))
        self.gate = nn.Linear(config.width, hidden)
        self.up = nn.Linear(config.width, hidden)
        self.out = nn.Linear(hidden, config.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(silu(self.gate(x_BTD)) * self.up(x_BTD))  # type: ignore[no-any-return]
