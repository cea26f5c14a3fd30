"""Branches that move information between positions.

Legend: B batch, T time, D width, H heads, K head width (H · K = D).
A branch's last matrix is called `out`: the scaled initialisation finds it by that name.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gradtui.presets import ModelConfig
from gradtui.presets.parts import TOPOLOGIES
from gradtui.zoo.norms import RMSNorm


class Attention(nn.Module):
    """Causal multi-head attention: softmax(QKᵀ/√K) V per head, then one output matrix.

    Vaswani et al. 2017, eq. 1 and §3.2.2; biases everywhere, no dropout. Position t sees 0…t.

    Q, K and V are three projections in one 3D × D matrix, in that order, as in torch.nn.MultiheadAttention.
    The layout matters to `xavier`, which then sees n_out = 3D and draws N(0, 2/(D + 3D)), half the variance
    of three separate matrices. With separate ones no warm-up saves a Post-LN stack of 12 layers (measured).

    `qk_norm` puts an RMSNorm on q and one on k, so that |logit| ≤ √K γ_q γ_k: over each head, with γ in common
    (Henry et al. 2020; Qwen 3, Gemma 3), or over the whole width before it is cut into heads (OLMo 2). A topology
    that asks for it has norms on q, k and v of each head (HybridNorm).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        all_three = TOPOLOGIES[config.topology].norms_qkv
        self.qk_norm = "per_head" if all_three else config.qk_norm
        if self.qk_norm != "none":
            width = config.width if self.qk_norm == "full" else config.width // config.heads
            self.q_norm = RMSNorm(width, config.eps)
            self.k_norm = RMSNorm(width, config.eps)
        self.v_norm = RMSNorm(config.width // config.heads, config.eps) if all_three else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BTD, k_BTD, v_BTD = self.qkv(x_BTD).chunk(3, dim=-1)
        if self.qk_norm == "full":
            q_BTD, k_BTD = self.q_norm(q_BTD), self.k_norm(k_BTD)
        q_BHTK, k_BHTK, v_BHTK = self._split(q_BTD), self._split(k_BTD), self._split(v_BTD)
        if self.qk_norm == "per_head":
            q_BHTK, k_BHTK = self.q_norm(q_BHTK), self.k_norm(k_BHTK)
        if self.v_norm is not None:
            v_BHTK = self.v_norm(v_BHTK)
        mixed_BHTK = scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def carriers(self) -> list[Tensor]:
        """The matrices whose product the output is linear in: W_V and W_O."""
        return [self.qkv.weight[2 * self.qkv.in_features :], self.out.weight]

    def _split(self, x_BTD: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, D) to (B, H, T, K)."""
        B, T, D = x_BTD.shape
        return x_BTD.view(B, T, self.heads, D // self.heads).transpose(1, 2)
