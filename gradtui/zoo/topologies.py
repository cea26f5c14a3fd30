"""How a residual branch f and a norm N are wired into one sublayer. Forward is the formula of the paper.

Legend: B batch, T time, D width, n streams. A sublayer maps the model's state to the next one, and its output is
the stream leaving the site. The state is the tensor x_BTD; where a topology carries more it is a named tuple whose
first field is the stream that a probe hears. The norm that many stacks need after their last layer belongs to the
model (`parts.Topology.final_norm`), not to a sublayer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig

NormMaker = Callable[[], nn.Module]
State = Any  # x_BTD, or a named tuple whose first field is the stream


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sublayer stands: `index` counts sublayers from 0 to 2L − 1, `kind` is "mixer" or "feedforward"."""

    index: int
    kind: str
    config: ModelConfig

    @property
    def layer(self) -> int:
        """The layer, counted from 0."""
        return self.index // 2

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.config.layers


class Sub(nn.Module):
    """One sublayer: `branch` is f, `norm` makes an N each time it is called.

    A topology that needs more than sublayers says so in its class: `enter` makes the state before layer 0, `leave`
    what the final norm is given, and the three modules below, built once a model, replace its own. `start` runs
    after the weights were drawn, `after_step`, where a module has it, after every optimizer step.
    """

    Embedding: ClassVar[type[nn.Module] | None] = None  # of (config)
    FinalNorm: ClassVar[type[nn.Module] | None] = None  # of (norm), from what `leave` returns to x_BTD
    Head: ClassVar[type[nn.Module] | None] = None  # of (width, vocabulary)

    # Who wants to know what comes back along the trunk; see `along`.
    trunk_listener: Callable[[Tensor], None] | None = None

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__()
        self.branch = branch
        self.norm = norm()

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> State:
        """The state before layer 0."""
        return x_BTD

    @staticmethod
    def leave(state: State) -> Any:
        """What the final norm, or the head where there is none, is given after the last layer."""
        return state

    def start(self) -> None:
        """Change the weights as they were drawn, where the topology has an initialisation of its own."""

    def along(self, x: Tensor) -> Tensor:
        """x as it goes along the trunk: x itself, or a view of it while `trunk_listener` listens.

        The gradient of that view is exactly the part of ∂L/∂x that came along the trunk; the rest came out of the
        branch. Take it after the branch was computed: gradients are then added up in the same order with and
        without, so that nothing else changes, to the last bit.
        """
        if self.trunk_listener is None:
            return x
        trunk = x.view_as(x)
        self.trunk_listener(trunk)
        return trunk


class Post(Sub):
    """x ← N(x + f(x)): the norm stands on the trunk (Vaswani et al. 2017, §3.1)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x)
        return N(self.along(x) + y)  # type: ignore[no-any-return]


class Pre(Sub):
    """x ← x + f(N(x)): the norm stands on the ramp, the trunk only adds (Xiong et al. 2020, Table 1)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x))
        return self.along(x) + y  # type: ignore[no-any-return]


class NoResidual(Sub):
    """x ← f(N(x)): the same stack without its trunk, as before residual connections (He et al. 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        return f(N(x))  # type: ignore[no-any-return]


class Sandwich(Sub):
    """x ← x + N′(f(N(x))): a norm before and after f, none on the trunk.

    Sandwich-LN (Ding et al. 2021, arXiv 2105.13290), Peri-LN (Kim et al. 2025, arXiv 2502.02732), Gemma 2 and 3.
    Each branch adds a vector of RMS 1, so RMS(x_k) ≈ √(RMS(x_0)² + k) after k sublayers at step 0.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        self.output_norm = norm()

    def forward(self, x: Tensor) -> Tensor:
        f, N, N2 = self.branch, self.norm, self.output_norm
        y = N2(f(N(x)))
        return self.along(x) + y  # type: ignore[no-any-return]


class OutputNorm(Sub):
    """x ← x + N(f(x)): the norm at the end of the ramp alone (OLMo 2, arXiv 2501.00656).

    f reads the stream as it is, so the logits of attention grow with RMS(x)²: it ships with qk_norm = "full".
    """

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = N(f(x))
        return self.along(x) + y  # type: ignore[no-any-return]


class DeepNorm(Sub):
    """x ← N(αx + f(x)), α = (2L)^¼, and the weights of f that carry values start times β = (8L)^−¼.

    Wang et al. 2022, arXiv 2203.00555, fig. 2: the constants of a decoder-only model. β is for the
    feed-forward's matrices, W_V and W_O, not for W_Q and W_K.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        self.alpha = (2 * place.layers) ** 0.25
        self.beta = (8 * place.layers) ** -0.25

    @torch.no_grad()
    def start(self) -> None:
        for weight in carriers(self.branch):
            weight *= self.beta

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x)
        return N(self.alpha * self.along(x) + y)  # type: ignore[no-any-return]


def carriers(branch: nn.Module) -> Iterable[Tensor]:
    """The matrices of a branch that its output is linear in, or close to it: all that do not make logits."""
    if hasattr(branch, "carriers"):
        return branch.carriers()  # type: ignore[no-any-return, operator]
    return [module.weight for module in branch.modules() if isinstance(module, nn.Linear)]


class LayerNormScaling(Sub):
    """x ← x + f(N(x)/√ℓ), ℓ = 1 … L the layer (Sun et al. 2025, arXiv 2502.05795, "The Curse of Depth").

    Pre-norm whose branches read less and less, so that the stream's variance grows like ln ℓ instead of ℓ.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        self.scale = 1 / math.sqrt(place.layer + 1)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x) * self.scale)
        return self.along(x) + y  # type: ignore[no-any-return]


class MixLN(Sub):
    """x ← N(x + f(x)) in the first quarter of the layers, x ← x + f(N(x)) in the others.

    Li et al. 2024, arXiv 2412.13795, with the paper's a = 0.25: the first ⌊aL⌋ layers are Post.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        self.post = place.layer < math.floor(0.25 * place.layers)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(x if self.post else N(x))
        x = self.along(x)
        return N(x + y) if self.post else x + y  # type: ignore[no-any-return]


class ReZero(Sub):
    """x ← x + αf(x), one α a sublayer, 0 at the start, no norm (Bachlechner et al. 2020, arXiv 2003.04887, eq. 1).

    At step 0 every layer is the identity: all ‖∂L/∂x_l‖ are the same number, all branch gradients exactly 0.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, nn.Identity, place)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        f = self.branch
        y = self.alpha * f(x)
        return self.along(x) + y  # type: ignore[no-any-return]


class Keel(Sub):
    """x ← N′(αx + f(N(x))), α = 2L the number of sublayers: a Post-LN whose trunk outweighs its ramps.

    Arxiv 2601.19895. The first mixer has no N′ (it is plain Pre), and the first layer no α.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        self.alpha = 1 if place.layer == 0 else 2 * place.layers
        self.outer_norm = norm() if place.index > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        f, N, N2 = self.branch, self.norm, self.outer_norm
        y = f(N(x))
        return N2(self.alpha * self.along(x) + y)  # type: ignore[no-any-return]


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


class ResiDual(Sub):
    """y = f(p);  p ← N(p + y),  d ← d + y: Post and Pre side by side (Xie et al. 2023, arXiv 2304.14802).

    Branches read the post-norm stream p, which is what a probe hears; d is a highway from each of them to the end.
    """

    FinalNorm = DualNorm

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> Dual:
        return Dual(x_BTD, x_BTD)

    def forward(self, state: Dual) -> Dual:
        f, N = self.branch, self.norm
        y = f(state.p)
        return Dual(N(self.along(state.p) + y), state.d + y)


class HybridNorm(Sub):
    """Mixer: x ← x + f(x), with RMSNorm on q, k and v of each head. Feed-forward: x ← N(x) + f(N(x)).

    Zhuo et al. 2025, arXiv 2503.04598. The norms on q, k, v are the attention's (`parts.Topology.norms_qkv`).
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm if place.kind == "feedforward" else nn.Identity, place)

    def forward(self, x: Tensor) -> Tensor:
        f, N = self.branch, self.norm
        y = f(N(x))
        return N(self.along(x)) + y  # type: ignore[no-any-return]


class HyperConnections(Sub):
    """X ← A_rᵀX + B f(N(A_mᵀX)) with n streams X (Zhu et al. 2024, arXiv 2409.19606, eq. 2).

    A_m (n) mixes what f reads, A_r (n × n) the streams, B (n) gives each its share of f. Each is a weight plus,
    with `dynamic`, s · tanh(X̄W), X̄ the streams under a norm of their own, W = 0 and s = 0.01 at the start. A_m
    starts as e_{k mod n} of the k-th sublayer, A_r as I, B as ones: all streams are then x of Pre, and the model
    is Pre. At the end the streams are added up.

    The state is X_BTnD itself: a probe hears all streams together.
    """

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        super().__init__(branch, norm, place)
        n, D = place.config.hyper.streams, place.config.width
        self.dynamic = place.config.hyper.dynamic
        self.A_m = nn.Parameter(torch.eye(n)[place.index % n])
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
        return A_r.transpose(-1, -2) @ self.along(X_BTnD) + B.unsqueeze(-1) * y_BTD.unsqueeze(2)


class ManifoldHyperConnections(HyperConnections):
    """X ← H_resᵀX + H_post f(N(H_pre X)), H_res doubly stochastic (mHC, Xie et al. 2025, arXiv 2512.24880).

    H_pre = σ(·), H_post = 2σ(·), H_res = Sinkhorn(exp(·)), each of a weight plus, with `dynamic`, a · xW, x all
    streams under one RMSNorm without weights. H_res then keeps the streams' mean and has spectral norm 1. Here
    W = 0, a = 0.01, H_post = 1, H_res ≈ I and H_pre near e_{k mod n} at the start: the streams are equal, so what
    f reads under its norm, and hence the model, is that of Pre.
    """

    ITERATIONS = 20

    def __init__(self, branch: nn.Module, norm: NormMaker, place: Place) -> None:
        Sub.__init__(self, branch, norm, place)
        n, D = place.config.hyper.streams, place.config.width
        self.dynamic, self.eps = place.config.hyper.dynamic, place.config.eps
        self.b_pre = nn.Parameter(4 * torch.eye(n)[place.index % n] - 2)
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
