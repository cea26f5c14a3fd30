"""How a residual branch f and a norm N are wired into one sublayer. Forward is the lesson's formula.

Legend: B batch, T time, D width. A sublayer maps x_BTD to x_BTD; its output is the stream leaving the site.
The norm that a pre-norm stack needs after its last layer belongs to the model (`Topology.final_norm`).
"""

from __future__ import annotations

from torch import Tensor, nn


class Post(nn.Module):
    """x ← N(x + f(x)): the norm stands on the trunk (Vaswani et al. 2017, §3.1)."""

    def __init__(self, branch: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        return N(x + f(x))  # type: ignore[no-any-return]


class Pre(nn.Module):
    """x ← x + f(N(x)): the norm stands on the ramp, the trunk only adds (Xiong et al. 2020, Table 1)."""

    def __init__(self, branch: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        return x + f(N(x))  # type: ignore[no-any-return]
