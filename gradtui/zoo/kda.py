"""Kimi Delta Attention: a recurrent memory that forgets by channel and writes by the delta rule.

Legend: B batch, T time, D width, H heads, K head width (H · K = D; keys and values are equally wide), R rank of
the decay's projection, C steps in a chunk, N chunks. Equations are those of the Kimi K3 technical report, §2.1.
No biases but the decay's. A branch's last matrix is called `out`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import pad, silu

from gradtui.presets import ModelConfig
from gradtui.zoo.norms import NoNorm, RMSNorm
from gradtui.zoo.readings import rms, spread

FASTEST = 5.0  # no channel forgets faster than e⁻⁵ a step
# A chunk multiplies by e^{±Σg}; with at most e⁻⁵ a step, 16 steps stay within e^{±80}, which fp32 can hold.
CHUNK = 16
SLOW, FAST = 1e-3, 1e-1  # the decays, −g, of a head's channels at the start
L2_EPS = 1e-6


class ShortConv(nn.Module):
    """y_t = Σ_j w_j ⊙ x_{t−j}, j = 0 … taps − 1: a causal filter of its own for every channel."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(taps, channels))  # the oldest step first

    def fill(self, std: Callable[[int, int], float], generator: torch.Generator) -> None:
        """Draw the filters: a channel has as many inputs as taps, and a step feeds as many outputs."""
        taps = len(self.weight)
        self.weight.normal_(0.0, std(taps, taps), generator=generator)

    def forward(self, x_BTD: Tensor) -> Tensor:
        taps, T = len(self.weight), x_BTD.shape[1]
        padded = pad(x_BTD, (0, 0, taps - 1, 0))
        y_BTD = self.weight[0] * padded[:, :T]
        for tap in range(1, taps):
            y_BTD = y_BTD + self.weight[tap] * padded[:, tap : tap + T]
        return y_BTD


class KDA(nn.Module):
    """y = W_o(σ(W_g x) ⊙ N_head(S_tᵀ q_t)), S_t = (I − β k kᵀ) diag(eᵍ) S_{t−1} + β k vᵀ (eqs 1 to 6).

    q, k = L2norm(SiLU(conv(W x))), q scaled by K^−½; v = SiLU(conv(W_v x)); β = σ(W_β x), one number a head;
    g = −5 σ(e^A (W_α↑ W_α↓ x + b)), one a channel. A memory S of K × K numbers a head, and no position encoding:
    order is in the recurrence. N_head is an RMSNorm over each head's output, before its gate;
    `output_norm = false` leaves it out. A starts at 0; b so that a head's channels forget between 0.1 % and 10 %
    a step, spaced evenly in log.

    `readings`, of the last batch in training mode: "head_rms" and "normed_head_rms", the spread over tokens and
    heads of the RMS of Sᵀq before and after N_head.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        head = width // heads
        rank = config.kda.decay_rank or head
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.conv = ShortConv(3 * width, config.kda.conv)
        self.beta = nn.Linear(width, heads, bias=False)
        self.decay_down = nn.Linear(width, rank, bias=False)
        self.decay_up = nn.Linear(rank, width, bias=False)
        start_K = torch.logspace(0, 1, head, base=FAST / SLOW) * SLOW / FASTEST
        self.decay_bias = Parameter(torch.logit(start_K).repeat(heads))
        self.decay_log_slope = Parameter(torch.zeros(heads))  # A
        self.gate = nn.Linear(width, width, bias=False)
        self.norm: nn.Module = (RMSNorm if config.kda.output_norm else NoNorm)(head, config.eps)
        self.out = nn.Linear(width, width, bias=False)
        self.readings: dict[str, Tensor] = {}

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTK, k_BHTK, v_BHTK = (self._split(x) for x in silu(self.conv(self.qkv(x_BTD))).chunk(3, dim=-1))
        q_BHTK = l2norm(q_BHTK) * q_BHTK.shape[-1] ** -0.5
        beta_BHT = torch.sigmoid(self.beta(x_BTD)).transpose(1, 2)
        o_BHTK = delta_rule(q_BHTK, l2norm(k_BHTK), v_BHTK, self.log_decay(x_BTD), beta_BHT)
        normed_BHTK = self.norm(o_BHTK)
        if self.training:
            self.readings = {"head_rms": spread(rms(o_BHTK)), "normed_head_rms": spread(rms(normed_BHTK))}
        gated_BTD = torch.sigmoid(self.gate(x_BTD)) * normed_BHTK.transpose(1, 2).flatten(2)
        return self.out(gated_BTD)  # type: ignore[no-any-return]

    def log_decay(self, x_BTD: Tensor) -> Tensor:
        """g = −5 σ(e^A (W_α↑ W_α↓ x + b)), in (−5, 0): (B, H, T, K)."""
        z_BHTK = self._split(self.decay_up(self.decay_down(x_BTD)) + self.decay_bias)
        return -FASTEST * torch.sigmoid(self.decay_log_slope.exp()[:, None, None] * z_BHTK)

    def _split(self, x_BTD: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, D) to (B, H, T, K)."""
        return x_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]


def l2norm(x: Tensor) -> Tensor:
    """x / √(Σx² + ε), over the last axis."""
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + L2_EPS)


def delta_rule(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, g_BHTK: Tensor, beta_BHT: Tensor) -> Tensor:
    """o_t = S_tᵀ q_t with S_t = (I − β k kᵀ) diag(eᵍ) S_{t−1} + β k vᵀ and S_{−1} = 0, a chunk at a time.

    g must lie in [−5, 0]; q carries its scale already. Inside a chunk let G_t = Σ_{s≤t} g_s. What is written at
    t is k_t d_tᵀ, with d_t = β_t (v_t − k_tᵀ diag(eᵍ) S_{t−1}): what the memory lacks of v_t. Over a chunk that is
    a unit lower-triangular system,

        (I + β A) d = β (v − (k eᴳ) S),   A_ts = (k_t e^{G_t}) · (k_s e^{−G_s}) for s < t,

    solved for all chunks at once before S is known; only the handing on of S goes chunk by chunk.
    """
    dtype, T = v_BHTK.dtype, v_BHTK.shape[2]
    q, k, v, g, beta = (_chunks(x) for x in (q_BHTK, k_BHTK, v_BHTK, g_BHTK, beta_BHT[..., None]))
    G = g.cumsum(dim=-2)
    faded_q, faded_k, raised_k = q * G.exp(), k * G.exp(), k * (-G).exp()
    scores = faded_q @ raised_k.mT
    within = scores.tril()
    lower = beta * (faded_k @ raised_k.mT).tril(-1)
    # The solver takes the diagonal for 1 without reading it.
    solved = torch.linalg.solve_triangular(
        lower, beta * torch.cat([v, faded_k], dim=-1), upper=False, unitriangular=True
    )
    written, erased = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    left = G[..., -1:, :]
    kept_k, keep = k * (left - G).exp(), left.mT.exp()
    S = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for n in range(G.shape[2]):
        d = written[:, :, n] - erased[:, :, n] @ S
        outputs.append(faded_q[:, :, n] @ S + within[:, :, n] @ d)
        S = keep[:, :, n] * S + kept_k[:, :, n].mT @ d
    return torch.cat(outputs, dim=2)[:, :, :T].to(dtype)


def _chunks(x_BHTK: Tensor) -> Tensor:
    """(B, H, T, …) to (B, H, N, C, …), at least single precision; the end is padded with steps that do nothing."""
    wide = x_BHTK.float() if x_BHTK.dtype in (torch.float16, torch.bfloat16) else x_BHTK
    whole = pad(wide, (0, 0, 0, -wide.shape[2] % CHUNK))
    return whole.unflatten(2, (-1, CHUNK))  # type: ignore[no-any-return]
