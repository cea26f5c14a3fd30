"""Parts of nGPT: every vector of length 1, weights included (Loshchilov et al. 2024, arXiv 2410.01131).

Legend: B batch, T time, D width, H heads, K head width, F hidden, V vocabulary.
A matrix's vectors along the width are the ones of length 1: rows where it reads the stream, columns where it
writes to it. They are made so at the start and again after every optimizer step. There is no bias, no weight
decay and no warm-up. The paper rotates q and k by position; here, as in the whole zoo, x_0 = token + position.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention, silu

from gradtui.presets import ModelConfig
from gradtui.zoo.embedding import Embedding


class Scale(nn.Module):
    """A learned vector that starts at `start` and is stored as `stored`, which sets its learning rate (§2.5)."""

    def __init__(self, width: int, *, start: float, stored: float) -> None:
        super().__init__()
        self.factor = start / stored
        self.value = nn.Parameter(torch.full((width,), stored))

    def forward(self) -> Tensor:
        return self.value * self.factor


class UnitEmbedding(Embedding):
    """x_0 = N(token + position), each of length 1."""

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return normalize(super().forward(tokens_BT), dim=-1)

    def start(self) -> None:
        """Make every vector one of length 1."""
        self.after_step()

    def after_step(self) -> None:
        """Make every vector one of length 1."""
        normalize_(self.token.weight, dim=1)
        if self.position is not None:
            normalize_(self.position.weight, dim=1)


class UnitHead(nn.Linear):
    """logits = s_z ⊙ Wx, W's rows of length 1: cosines, with a temperature for each word (eq. 3)."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__(width, vocabulary, bias=False)
        self.s_z = Scale(vocabulary, start=1.0, stored=1 / math.sqrt(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.s_z() * super().forward(x_BTD)  # type: ignore[no-any-return]

    def start(self) -> None:
        """Make every vector one of length 1."""
        self.after_step()

    def after_step(self) -> None:
        """Make every row one of length 1."""
        normalize_(self.weight, dim=1)


class UnitAttention(nn.Module):
    """Causal attention of unit queries and keys: softmax(√K (s ⊙ N(q)) · (s ⊙ N(k))) V (eqs. 15 and 16)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.s_qk = Scale(config.width, start=1.0, stored=1 / math.sqrt(config.width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        K = x_BTD.shape[-1] // self.heads
        q, k, v = (
            part.unflatten(-1, (self.heads, K)).transpose(1, 2) for part in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        s_H1K = self.s_qk().view(self.heads, 1, K)
        q, k = s_H1K * normalize(q, dim=-1), s_H1K * normalize(k, dim=-1)
        mixed_BHTK = scaled_dot_product_attention(q, k, v, is_causal=True, scale=math.sqrt(K))
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class UnitSwiGLU(nn.Module):
    """W₂ (silu(√D s_v ⊙ W_v x) ⊙ s_u ⊙ W_u x), F = ⅔ of the hidden width as in SwiGLU (eqs. 20 and 21)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = max(1, round(config.hidden_width * 2 / 3))
        self.gate = nn.Linear(config.width, hidden, bias=False)
        self.up = nn.Linear(config.width, hidden, bias=False)
        self.out = nn.Linear(hidden, config.width, bias=False)
        self.s_gate = Scale(hidden, start=math.sqrt(config.width), stored=1.0)
        self.s_up = Scale(hidden, start=1.0, stored=1.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, up = self.s_gate() * self.gate(x_BTD), self.s_up() * self.up(x_BTD)
        return self.out(silu(gate) * up)  # type: ignore[no-any-return]


@torch.no_grad()
def normalize_(weight: Tensor, dim: int) -> None:
    """Divide the vectors along `dim` by their lengths, in place."""
    weight.copy_(normalize(weight, dim=dim))
