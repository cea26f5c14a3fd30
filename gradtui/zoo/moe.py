"""Kimi K3's feed-forward: a mixture of experts that work in a narrow latent space.

Legend: B batch, T time, D width, N = B·T tokens, E experts, K experts a token takes, L latent width, F hidden
width of an expert. R rows make a block, one expert's work for up to R tokens; M blocks are worked at once.
Equations are those of the Kimi K3 technical report, §2.3. No biases. A branch's last matrix is called `out`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from gradtui.presets import ModelConfig
from gradtui.zoo.norms import NoNorm, RMSNorm
from gradtui.zoo.readings import rms, spread

GATE_CAP, UP_CAP = 4.0, 25.0  # β₁ and β₂ of SiTU-GLU
ROWS = 8


def situ_glu(gate: Tensor, up: Tensor) -> Tensor:
    """β₁ tanh(g/β₁) σ(g) · β₂ tanh(u/β₂), β₁ = 4, β₂ = 25 (eq. 12); half precision is widened inside.

    SwiGLU, g σ(g) · u, with both factors capped: no output exceeds β₁β₂ = 100.
    """
    g, u = _wide(gate), _wide(up)
    value = GATE_CAP * torch.tanh(g / GATE_CAP) * torch.sigmoid(g) * (UP_CAP * torch.tanh(u / UP_CAP))
    return value.to(gate.dtype)


class GatedUnit(nn.Module):
    """W₂ situ_glu(W_g x, W_u x), from and to one width.

    The sum of several such units is one unit with their hidden widths side by side.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(situ_glu(self.gate(x_BTD), self.up(x_BTD)))  # type: ignore[no-any-return]


class SiTUGLU(GatedUnit):
    """W₂ situ_glu(W_g x, W_u x) at full width: the dense feed-forward of K3's first layer (eq. 12).

    Three matrices, so F is ⅔ of the configured hidden width, as in SwiGLU.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.width, max(1, round(config.hidden_width * 2 / 3)))


class Router(nn.Module):
    """Which K experts each token takes, and with which weights (eqs 13 and 14).

    s = σ(W_r x); T = the K largest of s + b; p_j = s_j / Σ_T s · scaling. The bias b chooses, it does not weigh.

    With `balancing = "quantile"`, `rebalance` sets b after every optimizer step so that, on the batch just seen,
    each expert would have been taken by K/E of the tokens; with "fixed", b stays 0.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        moe = config.moe
        self.active, self.scaling, self.balancing = moe.active, moe.scaling, moe.balancing
        self.score = nn.Linear(config.width, moe.experts, bias=False)
        self.register_buffer("bias_E", torch.zeros(moe.experts))
        self.bias_E: Tensor
        self._next_E: Tensor | None = None

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the experts of each token, both (N, K), best first."""
        s_NE = torch.sigmoid(_wide(self.score(x_ND)))
        # One more than needed: Quantile Balancing asks what a token's first loser scored.
        best = (s_NE.detach() + self.bias_E).topk(self.active + 1, dim=-1)
        experts_NK = best.indices[:, :-1]
        if self.balancing == "quantile" and self.training and torch.is_grad_enabled():
            self._next_E = balanced_bias(s_NE.detach(), best.values[:, -1], self.active)
        s_NK = s_NE.gather(1, experts_NK)
        p_NK = s_NK / s_NK.sum(dim=-1, keepdim=True) * self.scaling
        return p_NK.to(x_ND.dtype), experts_NK

    def rebalance(self) -> None:
        """Choose with the bias that the last training batch asks for."""
        if self._next_E is not None:
            self.bias_E.copy_(self._next_E)
            self._next_E = None


def balanced_bias(s_NE: Tensor, alpha_N: Tensor, active: int) -> Tensor:
    """Quantile Balancing (eq. 14): the bias b_j, (E,), that would have given every expert N·K/E of these tokens.

    `s_NE` are the scores, `alpha_N` each token's (K+1)-th biased score: the bar that an expert must pass. Expert
    j passes token i's if s_ij + b_j > α_i, so −b_j is the (1 − K/E)-quantile of s_ij − α_i over the tokens.
    Only differences matter to a choice: the mean is taken off.
    """
    N, E = s_NE.shape
    share = min(N * active // E, N - 1)
    bar_E = (s_NE - alpha_N[:, None]).topk(share + 1, dim=0).values[-1]
    return bar_E.mean() - bar_E


class ExpertBank(nn.Module):
    """E gated units from and to the latent width, each applied to the tokens that chose it.

    Tokens are lined up by expert and cut into blocks of R rows, a last block padded; a block's weights are its
    expert's, and all blocks are three batched matmuls. How many blocks there can be is known beforehand,
    ⌊N·K/R⌋ + E, however uneven the choice: no token is dropped and no shape depends on the data. For 512 tokens
    and 16 of 896 experts that is 15 360 rows for 8 192 pairs, 1.9 times the least; every token through every
    expert would be 56 times.
    """

    def __init__(self, experts: int, latent: int, hidden: int) -> None:
        super().__init__()
        self.gate_ELF = Parameter(torch.empty(experts, latent, hidden))
        self.up_ELF = Parameter(torch.empty(experts, latent, hidden))
        self.down_EFL = Parameter(torch.empty(experts, hidden, latent))

    def fill(self, std: Callable[[int, int], float], generator: torch.Generator) -> None:
        """Draw every matrix with std(n_out, n_in)."""
        for weight in (self.gate_ELF, self.up_ELF, self.down_EFL):
            n_in, n_out = weight.shape[1:]
            weight.normal_(0.0, std(n_out, n_in), generator=generator)

    def forward(self, z_NL: Tensor, experts_NK: Tensor) -> Tensor:
        """E_j(z) for each token and each of its experts: (N, K, L)."""
        row_NK, token_MR, expert_M = blocks(experts_NK, len(self.gate_ELF))
        gate_MLF, up_MLF, down_MFL = (
            weight.index_select(0, expert_M) for weight in (self.gate_ELF, self.up_ELF, self.down_EFL)
        )
        z_MRL = _rows(z_NL, token_MR)
        out_MRL = situ_glu(z_MRL @ gate_MLF, z_MRL @ up_MLF) @ down_MFL
        return _rows(out_MRL.flatten(0, 1), row_NK)


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows] for any shape of `rows`; on a CPU several times as fast, backwards."""
    return x.index_select(0, rows.flatten()).view(*rows.shape, *x.shape[1:])


@torch.no_grad()
def blocks(experts_NK: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the work of N·K pairs of a token and an expert goes, in blocks of ROWS rows with one expert each.

    Returns each pair's row among all M·R rows (N, K), the token in every row (M, R; a padded row works on token
    0 and is not read), and every block's expert (M,).
    """
    N, K = experts_NK.shape
    M = N * K // ROWS + experts
    device = experts_NK.device
    chosen_P, pair_P = experts_NK.flatten().sort(stable=True)
    load_E = torch.zeros(experts, dtype=torch.int64, device=device)
    load_E.scatter_add_(0, chosen_P, torch.ones_like(chosen_P))
    blocks_E = (load_E + ROWS - 1).div(ROWS, rounding_mode="floor")
    end_E = blocks_E.cumsum(0)
    first_row_E = (end_E - blocks_E) * ROWS
    first_pair_E = load_E.cumsum(0) - load_E
    row_P = (first_row_E - first_pair_E)[chosen_P] + torch.arange(N * K, device=device)
    row_NK = torch.empty_like(row_P).scatter_(0, pair_P, row_P).view(N, K)
    token_MR = torch.zeros(M * ROWS, dtype=torch.int64, device=device)
    token_MR.scatter_(0, row_P, pair_P.div(K, rounding_mode="floor"))
    expert_M = torch.searchsorted(end_E, torch.arange(M, device=device), right=True).clamp_(max=experts - 1)
    return row_NK, token_MR.view(M, ROWS), expert_M


class LatentMoE(nn.Module):
    """y = Σ_j E_j^shared(x) + W↑ N(u), u = Σ_{i∈T} p_i E_i(W↓x) (eq. 11, §2.3.1).

    Routed experts see the narrow z = W↓x; the router and the shared experts see x itself. N is an RMSNorm over
    the latent width: whatever the choice and its weights have made of u's scale, W↑ gets RMS 1 (times γ).
    `latent_norm = false` leaves it out. Since N(cu) = N(u), the norm also makes the scaling factor and the
    renormalisation of p immaterial, but for ε.

    `readings`, of the last batch in training mode: "routed_rms" and "latent_rms", the spread over tokens of
    RMS(u) and RMS(N(u)); "out_rms", the same of W↑'s output; "load", the most loaded expert's tokens over the
    mean; and, after `after_step`, "out_grad" = ‖∂L/∂W↑‖ as the optimizer saw it.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        moe = config.moe
        latent = moe.latent or max(1, config.width // 2)
        self.down = nn.Linear(config.width, latent, bias=False)
        self.router = Router(config)
        self.experts = ExpertBank(moe.experts, latent, moe.hidden or max(1, latent // 2))
        self.norm: nn.Module = (RMSNorm if moe.latent_norm else NoNorm)(latent, config.eps)
        self.out = nn.Linear(latent, config.width, bias=False)
        shared_hidden = moe.shared * (moe.shared_hidden or config.width)
        self.shared = GatedUnit(config.width, shared_hidden) if moe.shared else None
        self.readings: dict[str, Tensor] = {}

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, 1)
        p_NK, experts_NK = self.router(x_ND)
        expert_out_NKL = self.experts(self.down(x_ND), experts_NK)
        u_NL = (p_NK[..., None] * expert_out_NKL).sum(dim=1)
        normed_NL = self.norm(u_NL)
        routed_ND = self.out(normed_NL)
        if self.training:
            self._read(u_NL, normed_NL, routed_ND, experts_NK)
        y_BTD: Tensor = routed_ND.view_as(x_BTD)
        return y_BTD if self.shared is None else y_BTD + self.shared(x_BTD)

    def after_step(self) -> None:
        """Take over the new selection bias; to be called between the optimizer's step and `zero_grad`."""
        self.router.rebalance()
        if self.out.weight.grad is not None:
            self.readings["out_grad"] = self.out.weight.grad.norm()

    @torch.no_grad()
    def _read(self, u_NL: Tensor, normed_NL: Tensor, routed_ND: Tensor, experts_NK: Tensor) -> None:
        experts = self.router.bias_E.shape[0]
        load_E = torch.zeros(experts, device=u_NL.device)
        load_E.scatter_add_(0, experts_NK.flatten(), torch.ones(experts_NK.numel(), device=u_NL.device))
        self.readings = {
            "routed_rms": spread(rms(u_NL)),
            "latent_rms": spread(rms(normed_NL)),
            "out_rms": spread(rms(routed_ND)),
            "load": load_E.max() * experts / experts_NK.numel(),
        }


def _wide(x: Tensor) -> Tensor:
    """At least single precision: what the report computes in fp32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
