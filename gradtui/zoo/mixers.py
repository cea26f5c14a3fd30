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

    Vaswani et al. 2017, eq. 1 and §3.2.2; biases everywhere, no dropout. Position t sees 0…t.

    Q, K and V are three projections in one 3D × D matrix, in that order, as in torch.nn.MultiheadAttention.
    The layout matters to `xavier`, which then sees n_out = 3D and draws N(0, 2/(D + 3D)), half the variance
    of three separate matrices. With separate ones no warm-up saves a Post-LN stack of 12 layers (measured).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BTD, k_BTD, v_BTD = self.qkv(x_BTD).chunk(3, dim=-1)
        mixed_BHTK = scaled_dot_product_attention(
            self._split(q_BTD), self._split(k_BTD), self._split(v_BTD), is_causal=True
        )
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x_BTD: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, D) to (B, H, T, K)."""
        B, T, D = x_BTD.shape
        return x_BTD.view(B, T, self.heads, D // self.heads).transpose(1, 2)
