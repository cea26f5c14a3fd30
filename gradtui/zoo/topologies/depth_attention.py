"""Attention over depth in place of the residual sum.

Legend: B batch, T time, D width, V sources: the embedding and what branches have put out since.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig
from gradtui.zoo.norms import NoNorm, RMSNorm
from gradtui.zoo.topologies.base import NormMaker, Sublayer, SublayerPosition


class Depth(NamedTuple):
    """What runs through a stack of AttnRes: the newest source, the finished ones, and what is read next.

    In a plain residual stack ∂L/∂x_{l+1} is also the gradient of the branch that has just been added; here that
    is ∂L/∂partial, so that a probe
    of `partial` compares like with like. With zero queries the two are equal.
    """

    partial: Tensor  # sum of the branches of the block under way
    blocks: tuple[Tensor, ...]  # the embedding, then the sum of every finished block
    mixed: Tensor  # h, what the next branch reads


class AttnRes(Sublayer):
    """h ← Σ_i α_i v_i, α = softmax_i(wᵀ N_key(v_i)); the next source is v = f(N(h)) (arXiv 2603.15031, eqs 8-9).

    Sources are the embedding and every branch's output (Full, `block = 0`), or the embedding and the sums over
    blocks of layers, the last one unfinished (Block; Kimi K3 has blocks of 12). Values are taken as they are, keys
    through an RMSNorm, so that a large source gets no larger weight; `key_norm = false` leaves it out. The query
    w is a weight, zero at first: then α is 1/n, h the plain sum over n, and N(h) what Pre would read.

    A sublayer mixes what the next one reads, so its w is the next one's w_l of the paper, and the last sublayer's
    mixes what the final norm reads. `readings`: "depth", α averaged over tokens, (V,), the embedding first.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        config = position.config
        # Counted in sublayers, two a layer; in Full each is a block of its own.
        length = 2 * config.attn_res.block or 1
        self.opens = position.index % length == 0
        self.key_norm: nn.Module = (RMSNorm if config.attn_res.key_norm else NoNorm)(config.width, config.eps)
        self.query = nn.Parameter(torch.zeros(config.width))
        self.readings: dict[str, Tensor] = {}

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> Depth:
        """The embedding is the only source, so it is what layer 0 reads."""
        return Depth(x_BTD, (), x_BTD)

    @staticmethod
    def leave(state: Depth) -> Tensor:
        """The last mix."""
        return state.mixed

    def forward(self, state: Depth) -> Depth:
        f, N = self.branch, self.norm
        v_BTD = f(N(state.mixed))
        if self.opens:
            blocks, partial = (*state.blocks, state.partial), v_BTD
        else:
            blocks, partial = state.blocks, state.partial + v_BTD
        return Depth(partial, blocks, self.mix((*blocks, partial)))

    def mix(self, sources: tuple[Tensor, ...]) -> Tensor:
        """Σ_i α_i v_i over the sources v_i, each (B, T, D)."""
        v_VBTD = torch.stack(sources)
        alpha_VBT = torch.softmax(self.key_norm(v_VBTD) @ self.query, dim=0)
        if self.training:
            self.readings = {"depth": alpha_VBT.detach().mean(dim=(1, 2))}
        return torch.einsum("vbt,vbtd->btd", alpha_VBT, v_VBTD)
