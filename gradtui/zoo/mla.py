"""Gated multi-head latent attention: attention whose queries, keys and values come through narrow waists.

Legend: B batch, T time, D width, H heads, K head width (H · K = D), S key channels that all heads share, Q and C
width of the query's and the key-value latent. No biases. A branch's last matrix is called `out`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gradtui.presets import ModelConfig
from gradtui.zoo.norms import RMSNorm


class MLA(nn.Module):
    """y = W_o(σ(W_g x) ⊙ softmax(QKᵀ/√(K+S)) V), causal (Kimi K3 technical report, eq. 7).

    q = W_q↑ N(W_q↓ x); c = N(W_kv↓ x); every head's key is its own K channels of W_kv↑ c beside S channels of
    W_s x that all heads share; v is W_kv↑ c, too (DeepSeek-V2, arXiv 2405.04434, eqs 9 to 13, without rotation).
    N is an RMSNorm. There is no position encoding and, unlike in KDA, no norm of the output.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, heads, mla = config.width, config.heads, config.mla
        self.heads, self.head = heads, width // heads
        self.shared = mla.shared_key or max(1, self.head // 2)
        q_latent, kv_latent = mla.q_latent or max(1, width // 2), mla.kv_latent or max(1, width // 2)
        self.q_down = nn.Linear(width, q_latent, bias=False)
        self.q_norm = RMSNorm(q_latent, config.eps)
        self.q_up = nn.Linear(q_latent, heads * (self.head + self.shared), bias=False)
        self.kv_down = nn.Linear(width, kv_latent, bias=False)
        self.kv_norm = RMSNorm(kv_latent, config.eps)
        self.kv_up = nn.Linear(kv_latent, heads * 2 * self.head, bias=False)
        self.shared_key = nn.Linear(width, self.shared, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTE = self._split(self.q_up(self.q_norm(self.q_down(x_BTD))))  # E = K + S
        kv_BHTE = self._split(self.kv_up(self.kv_norm(self.kv_down(x_BTD))))
        k_BHTK, v_BHTK = kv_BHTE.chunk(2, dim=-1)
        shared_BHTS = self.shared_key(x_BTD)[:, None].expand(-1, self.heads, -1, -1)
        k_BHTE = torch.cat([k_BHTK, shared_BHTS], dim=-1)
        mixed_BHTK = scaled_dot_product_attention(q_BHTE, k_BHTE, v_BHTK, is_causal=True)
        gated_BTD = torch.sigmoid(self.gate(x_BTD)) * mixed_BHTK.transpose(1, 2).flatten(2)
        return self.out(gated_BTD)  # type: ignore[no-any-return]

    def _split(self, x_BTD: Tensor) -> Tensor:
        """Cut the last axis into heads: (B, T, H · E) to (B, H, T, E)."""
        return x_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]
