"""Branches that move information between positions.

Legend: B batch, T time, D width, H heads, K head width (H · K = D).
A branch's last matrix is called `out`: the scaled initialisation finds it by that name.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gradtui.presets import ModelConfig


class Attention(nn.Module):
    """Causal multi-head attention: softmax(QKᵀ/√K) V per head, then one output matrix.

    Vaswani et al. 2017, eq. 1 and §3.2.2; biases on all four matrices, no dropout. Position t sees 0…t.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTK = self._split(self.query(x_BTD))
        k_BHTK = self._split(self.key(x_BTD))
        v_BHTK = self._split(self.value(x_BTD))
        mixed_BHTK = scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x_BTD: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, D) to (B, H, T, K)."""
        return x_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)
