"""Where the stream begins: bytes to vectors.

Legend: B batch, T time, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from gradtui.presets import ModelConfig

VOCABULARY = 256  # byte values


class Embedding(nn.Module):
    """x_0 = token + learned position, or the token alone: (B, T) byte values to (B, T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, config.width)
        self.position = nn.Embedding(config.context, config.width) if config.position == "learned" else None

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD: Tensor = self.token(tokens_BT)
        return x_BTD if self.position is None else x_BTD + self.position.weight[: tokens_BT.shape[1]]
