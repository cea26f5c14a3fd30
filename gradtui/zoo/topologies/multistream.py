"""Topologies that carry several streams through the stack."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig
from gradtui.zoo.topologies.base import NormMaker, Sublayer, SublayerPosition


class Dual(NamedTuple):
    """ResiDual's two streams, each (B, T, D): `p` is normed at every sublayer, `d` only adds."""

    p: Tensor
    d: Tensor


class DualNorm(nn.Module):
    """p + N(d): how ResiDual's two streams meet after the last layer (Xie et al. 2023, arXiv 2304.14802)."""

    def __init__(self, norm: NormMaker) -> None:
        super().__init__()
        self.norm = norm()

    def forward(self, state: Dual) -> Tensor:
        N = self.norm
        return state.p + N(state.d)  # type: ignore[no-any-return]


class ResiDual(Sublayer):
    """y = f(p);  p ← N(p + y),  d ← d + y: Post and Pre side by side (Xie et al. 2023, arXiv 2304.14802).

    Branches read the post-norm stream p, which is what a probe measures; d adds up what they return.
    """

    FinalNorm = DualNorm

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> Dual:
        return Dual(x_BTD, x_BTD)

    def forward(self, state: Dual) -> Dual:
        f, N = self.branch, self.norm
        y = f(state.p)
        return Dual(N(self.trunk(state.p) + y), state.d + y)


class HyperConnections(Sublayer):
    """X ← A_rᵀX + B f(N(A_mᵀX)) with n streams X (Zhu et al. 2024, arXiv 2409.19606, eq. 2).

    A_m (n) mixes what f reads, A_r (n × n) the streams, B (n) gives each its share of f. Each is a weight plus,
    with `dynamic`, s · tanh(X̄W), X̄ the streams under a norm of their own, W = 0 and s = 0.01 at the start. A_m
    starts as e_{k mod n} of the k-th sublayer, A_r as I, B as ones: all streams are then x of Pre, and the model
    is Pre. At the end the streams are added up.

    The state is X_BTnD itself: a probe measures all streams together.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__(branch, norm, position)
        n, D = position.config.hyper.streams, position.config.width
        self.dynamic = position.config.hyper.dynamic
        self.A_m = nn.Parameter(torch.eye(n)[position.index % n])
        self.A_r = nn.Parameter(torch.eye(n))
        self.B = nn.Parameter(torch.ones(n))
        if self.dynamic:
            self.stream_norm = norm()
            self.W_m = nn.Parameter(torch.zeros(D))
            self.W_r = nn.Parameter(torch.zeros(D, n))
            self.W_b = nn.Parameter(torch.zeros(D))
            self.s_a = nn.Parameter(torch.tensor(0.01))
            self.s_b = nn.Parameter(torch.tensor(0.01))

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> Tensor:
        return x_BTD.unsqueeze(2).expand(-1, -1, config.hyper.streams, -1)

    @staticmethod
    def leave(state: Tensor) -> Tensor:
        return state.sum(dim=2)

    def connections(self, X_BTnD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A_m (…, n), A_r (…, n, n) from row to column, and B (…, n) for these streams."""
        if not self.dynamic:
            return self.A_m, self.A_r, self.B
        X = self.stream_norm(X_BTnD)
        A_m = self.A_m + self.s_a * torch.tanh(X @ self.W_m)
        A_r = self.A_r + self.s_a * torch.tanh(X @ self.W_r)
        return A_m, A_r, self.B + self.s_b * torch.tanh(X @ self.W_b)

    def forward(self, X_BTnD: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        A_m, A_r, B = self.connections(X_BTnD)
        y_BTD: Tensor = f(N((A_m.unsqueeze(-1) * X_BTnD).sum(dim=2)))
        return A_r.transpose(-1, -2) @ self.trunk(X_BTnD) + B.unsqueeze(-1) * y_BTD.unsqueeze(2)


class ManifoldHyperConnections(HyperConnections):
    """X ← H_resᵀX + H_post f(N(H_pre X)), H_res doubly stochastic (mHC, Xie et al. 2025, arXiv 2512.24880).

    H_pre = σ(·), H_post = 2σ(·), H_res = Sinkhorn(exp(·)), each of a weight plus, with `dynamic`, a · xW, x all
    streams under one RMSNorm without weights. H_res then keeps the streams' mean and has spectral norm 1. Here
    W = 0, a = 0.01, H_post = 1, H_res ≈ I and H_pre near e_{k mod n} at the start: the streams are equal, so what
    f reads under its norm, and hence the model, is that of Pre.
    """

    ITERATIONS = 20

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        Sublayer.__init__(self, branch, norm, position)
        n, D = position.config.hyper.streams, position.config.width
        self.dynamic, self.eps = position.config.hyper.dynamic, position.config.eps
        self.b_pre = nn.Parameter(4 * torch.eye(n)[position.index % n] - 2)
        self.b_post = nn.Parameter(torch.zeros(n))
        self.b_res = nn.Parameter(4 * torch.eye(n))
        if self.dynamic:
            self.W_pre = nn.Parameter(torch.zeros(n * D, n))
            self.W_post = nn.Parameter(torch.zeros(n * D, n))
            self.W_res = nn.Parameter(torch.zeros(n * D, n * n))
            self.a = nn.Parameter(torch.full((3,), 0.01))

    def connections(self, X_BTnD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """H_pre (…, n), H_res (…, n, n) from row to column, and H_post (…, n) for these streams."""
        pre: Tensor = self.b_pre
        post: Tensor = self.b_post
        res: Tensor = self.b_res
        if self.dynamic:
            x = X_BTnD.flatten(2)
            x = x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)
            pre = pre + self.a[0] * (x @ self.W_pre)
            post = post + self.a[1] * (x @ self.W_post)
            res = res + self.a[2] * (x @ self.W_res).unflatten(-1, res.shape)
        return torch.sigmoid(pre), sinkhorn(res, self.ITERATIONS), 2 * torch.sigmoid(post)


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """exp(logits), its rows and then its columns divided by their sums, again and again: doubly stochastic.

    Matrices are the last two dimensions; they are brought to the front, where sums over four numbers are fast.
    10⁻⁶ keeps columns from summing to 0, as in DeepSeek-V4.
    """
    M = logits.movedim((-2, -1), (0, 1)).contiguous()
    M = torch.softmax(M, dim=1) + 1e-6  # the first division of rows, without overflow
    M = M / M.sum(dim=0, keepdim=True)
    for _ in range(iterations - 1):
        M = M / M.sum(dim=1, keepdim=True)
        M = M / M.sum(dim=0, keepdim=True)
    return M.movedim((0, 1), (-2, -1))
