"""LatentMoE: the dispatch against a plain loop and Kimi Linear's, routing, balancing, and what the norm does."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import ModelConfig, MoEConfig
from gradtui.zoo import moe as module
from gradtui.zoo.moe import ExpertBank, LatentMoE, Router, balanced_bias, blocks, situ_glu

WIDTH, LATENT, HIDDEN, EXPERTS, ACTIVE, SHARED = 24, 12, 10, 20, 3, 2


def config(eps: float = 1e-5, **options) -> ModelConfig:
    shape = {"experts": EXPERTS, "active": ACTIVE, "latent": LATENT, "hidden": HIDDEN, "shared_hidden": 14}
    return ModelConfig(width=WIDTH, heads=2, eps=eps, moe=MoEConfig(**{**shape, **options}))


def drawn(part: nn.Module, seed: int = 0, std: float = 0.3) -> nn.Module:
    """Every parameter drawn anew, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    part = part.double()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.normal_(0.0, std, generator=generator)
        for name, buffer in part.named_buffers():
            if name.endswith("bias_E"):
                buffer.normal_(0.0, 0.1, generator=generator)
    return part


def inputs(batch: int = 3, time: int = 7, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, WIDTH, dtype=torch.float64, generator=generator)


def situ(gate: Tensor, up: Tensor) -> Tensor:
    return 4 * torch.tanh(gate / 4) / (1 + torch.exp(-gate)) * 25 * torch.tanh(up / 25)


def by_the_book(moe: LatentMoE, x_BTD: Tensor, *, scaling: float = 1.0, norm: bool = True) -> Tensor:
    """Equations 11 to 13, one token and one expert at a time."""
    weights = dict(moe.named_parameters())
    outputs = []
    for x_D in x_BTD.flatten(0, 1):
        s_E = 1 / (1 + torch.exp(-weights["router.score.weight"] @ x_D))
        biased_E = (s_E.detach() + moe.router.bias_E).tolist()
        chosen = sorted(range(EXPERTS), key=biased_E.__getitem__, reverse=True)[:ACTIVE]
        z_L = weights["down.weight"] @ x_D
        u_L = torch.zeros(LATENT, dtype=x_D.dtype)
        for j in chosen:
            hidden_F = situ(weights["experts.gate_ELF"][j].T @ z_L, weights["experts.up_ELF"][j].T @ z_L)
            p = scaling * s_E[j] / sum(s_E[i] for i in chosen)
            u_L = u_L + p * (weights["experts.down_EFL"][j].T @ hidden_F)
        if norm:
            u_L = u_L / torch.sqrt(u_L.square().mean() + 1e-5) * weights["norm.gamma"]
        y_D = weights["out.weight"] @ u_L
        for gate_FD, up_FD, out_DF in zip(  # each shared expert is a slice of one wide unit
            weights["shared.gate.weight"].chunk(SHARED),
            weights["shared.up.weight"].chunk(SHARED),
            weights["shared.out.weight"].chunk(SHARED, dim=1),
            strict=True,
        ):
            y_D = y_D + out_DF @ situ(gate_FD @ x_D, up_FD @ x_D)
        outputs.append(y_D)
    return torch.stack(outputs).view_as(x_BTD)


@pytest.mark.parametrize(("norm", "scaling"), [(True, 1.0), (False, 1.0), (False, 2.446)])
def test_latent_moe_is_the_reports_equation_one_token_and_expert_at_a_time(norm, scaling):
    moe = drawn(LatentMoE(config(latent_norm=norm, scaling=scaling)))
    x_BTD = inputs()
    wanted_x, x = x_BTD.clone().requires_grad_(), x_BTD.clone().requires_grad_()
    wanted = by_the_book(moe, wanted_x, scaling=scaling, norm=norm)
    wanted_grads = torch.autograd.grad(wanted.square().sum(), [wanted_x, *moe.parameters()])
    got = moe(x)
    grads = torch.autograd.grad(got.square().sum(), [x, *moe.parameters()])
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    for a, b in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert all(float(grad.abs().max()) > 0 for grad in grads)


def test_every_expert_works_on_the_tokens_that_chose_it_however_uneven_the_choice():
    bank = drawn(ExpertBank(EXPERTS, LATENT, HIDDEN))
    generator = torch.Generator().manual_seed(3)
    z_NL = torch.randn(50, LATENT, dtype=torch.float64, generator=generator)
    everybody_alike = torch.tensor([4, 19, 0]).repeat(50, 1)
    at_random = torch.stack([torch.randperm(EXPERTS, generator=generator)[:3] for _ in range(50)])
    for experts_NK in (everybody_alike, at_random):
        out_NKL = bank(z_NL, experts_NK)
        for token, place in itertools.product(range(50), range(3)):
            j = experts_NK[token, place]
            hidden_F = situ(z_NL[token] @ bank.gate_ELF[j], z_NL[token] @ bank.up_ELF[j])
            torch.testing.assert_close(out_NKL[token, place], hidden_F @ bank.down_EFL[j], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tokens", [1, 5, 64])
def test_no_pair_of_token_and_expert_is_dropped_or_shares_its_row(tokens):
    generator = torch.Generator().manual_seed(tokens)
    experts_NK = torch.stack([torch.randperm(EXPERTS, generator=generator)[:4] for _ in range(tokens)])
    row_NK, token_MR, expert_M = blocks(experts_NK, EXPERTS)
    assert row_NK.unique().numel() == tokens * 4
    rows_in_a_block = token_MR.shape[1]
    for token, place in itertools.product(range(tokens), range(4)):
        row = int(row_NK[token, place])
        assert token_MR.flatten()[row] == token
        assert expert_M[row // rows_in_a_block] == experts_NK[token, place]


def test_the_dispatch_is_that_of_kimi_linears_mixture(monkeypatch):
    """With identities around it, no norm and SwiGLU, LatentMoE is the older mixture, weight by weight."""
    kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    from transformers import KimiLinearConfig

    monkeypatch.setattr(module, "situ_glu", lambda gate, up: nn.functional.silu(gate) * up)
    options = {"latent": WIDTH, "shared_hidden": HIDDEN, "latent_norm": False, "scaling": 2.446}
    ours = drawn(LatentMoE(config(**options))).float()
    theirs = kimi.KimiLinearMoE(
        KimiLinearConfig(
            hidden_size=WIDTH,
            moe_intermediate_size=HIDDEN,
            num_local_experts=EXPERTS,
            num_experts=EXPERTS,
            num_experts_per_tok=ACTIVE,
            n_shared_experts=SHARED,
            routed_scaling_factor=2.446,
            n_group=1,
            topk_group=1,
            norm_topk_prob=True,
        )
    )
    with torch.no_grad():
        ours.down.weight.copy_(torch.eye(WIDTH))
        ours.out.weight.copy_(torch.eye(WIDTH))
        theirs.gate.weight.copy_(ours.router.score.weight)
        theirs.gate.e_score_correction_bias.copy_(ours.router.bias_E)
        gate_up = torch.cat([ours.experts.gate_ELF.mT, ours.experts.up_ELF.mT], dim=1)
        theirs.experts.gate_up_proj.copy_(gate_up)
        theirs.experts.down_proj.copy_(ours.experts.down_EFL.mT)
        for name, mine in (("gate_proj", "gate"), ("up_proj", "up"), ("down_proj", "out")):
            getattr(theirs.shared_experts, name).weight.copy_(getattr(ours.shared, mine).weight)
    x, y = inputs().float().requires_grad_(), inputs().float().requires_grad_()
    a, b = ours(x), theirs(y)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    a.square().sum().backward()
    b.square().sum().backward()
    pairs = [
        (x.grad, y.grad),
        (ours.router.score.weight.grad, theirs.gate.weight.grad),
        (ours.experts.down_EFL.grad.mT, theirs.experts.down_proj.grad),
    ]
    for mine, yours in pairs:
        assert float((mine - yours).norm()) <= 1e-5 * float(yours.norm())


def test_a_token_takes_distinct_experts_with_weights_that_add_up_to_the_scaling_factor():
    router = drawn(Router(config(scaling=2.5)))
    p_NK, experts_NK = router(inputs().flatten(0, 1))
    torch.testing.assert_close(p_NK.sum(dim=1), torch.full((21,), 2.5, dtype=torch.float64), rtol=1e-12, atol=0)
    assert all(row.unique().numel() == ACTIVE for row in experts_NK)


def test_the_selection_bias_chooses_and_does_not_weigh():
    router = drawn(Router(config()))
    x_ND = inputs().flatten(0, 1)
    router.bias_E.zero_()
    router.bias_E[7] = 10.0
    p_NK, experts_NK = router(x_ND)
    assert (experts_NK[:, 0] == 7).all()
    s_NE = torch.sigmoid(x_ND @ router.score.weight.T)
    s_NK = s_NE.gather(1, experts_NK)
    torch.testing.assert_close(p_NK, s_NK / s_NK.sum(dim=1, keepdim=True), rtol=1e-12, atol=0)


def loads(s_NE: Tensor, bias_E: Tensor, active: int) -> list[int]:
    chosen = (s_NE + bias_E).topk(active, dim=1).indices
    return chosen.flatten().bincount(minlength=s_NE.shape[1]).tolist()


def rebalanced(s_NE: Tensor, bias_E: Tensor, active: int) -> Tensor:
    alpha_N = (s_NE + bias_E).topk(active + 1, dim=1).values[:, -1]
    return balanced_bias(s_NE, alpha_N, active)


def test_quantile_balancing_turns_loads_of_four_three_one_none_into_two_each():
    """Eight tokens, four experts, one each, as in the report's figure 5 (the scores are ours)."""
    s_NE = torch.tensor(
        [
            [0.05, 0.45, 0.70, 0.20],
            [0.30, 0.60, 0.55, 0.50],
            [0.85, 0.95, 0.55, 0.45],
            [0.80, 0.95, 0.20, 0.55],
            [0.90, 0.15, 0.55, 0.85],
            [0.95, 0.25, 0.60, 0.85],
            [0.60, 0.35, 0.05, 0.25],
            [0.90, 0.35, 0.25, 0.25],
        ]
    )
    assert loads(s_NE, torch.zeros(4), 1) == [4, 3, 1, 0]
    bias_E = rebalanced(s_NE, torch.zeros(4), 1)
    assert loads(s_NE, bias_E, 1) == [2, 2, 2, 2]
    assert abs(float(bias_E.mean())) < 1e-7


def test_quantile_balancing_is_the_quantile_of_how_far_each_token_is_above_its_bar():
    generator = torch.Generator().manual_seed(0)
    s_NE = torch.rand(64, 16, dtype=torch.float64, generator=generator)
    alpha_N = s_NE.topk(5, dim=1).values[:, -1]
    bias_E = balanced_bias(s_NE, alpha_N, 4)
    bar_E = torch.quantile(s_NE - alpha_N[:, None], 1 - 4 / 16, dim=0, interpolation="lower")
    torch.testing.assert_close(bias_E, bar_E.mean() - bar_E, rtol=1e-12, atol=1e-12)
    above_NE = s_NE - alpha_N[:, None]
    # N·K/E tokens pass; a tie is possible, since a token's first loser is at its bar exactly.
    assert int((above_NE > bar_E).sum(dim=0).max()) <= 64 * 4 // 16
    assert int((above_NE >= bar_E).sum(dim=0).min()) > 64 * 4 // 16


def test_balancing_again_and_again_evens_out_what_a_skewed_router_prefers():
    generator = torch.Generator().manual_seed(0)
    skew_E = torch.linspace(-2, 2, 64)
    s_NE = torch.sigmoid(torch.randn(512, 64, generator=generator) + skew_E)
    bias_E = torch.zeros(64)
    before = max(loads(s_NE, bias_E, 4)) / (512 * 4 / 64)
    for _ in range(5):
        bias_E = rebalanced(s_NE, bias_E, 4)
    after = max(loads(s_NE, bias_E, 4)) / (512 * 4 / 64)
    assert before > 5
    assert after < 1.5


@pytest.mark.parametrize("balancing", ["quantile", "fixed"])
def test_the_bias_moves_after_a_training_step_only_and_never_when_fixed(balancing):
    moe = drawn(LatentMoE(config(balancing=balancing)))
    start = moe.router.bias_E.clone()
    moe.eval()(inputs())
    moe.after_step()
    with torch.no_grad():
        moe.train()(inputs())
    moe.after_step()
    assert torch.equal(moe.router.bias_E, start)
    moe(inputs())
    assert torch.equal(moe.router.bias_E, start), "a forward pass must not change what the next one chooses"
    moe.after_step()
    assert torch.equal(moe.router.bias_E, start) == (balancing == "fixed")


def test_situ_glu_never_exceeds_a_hundred_and_is_swiglu_for_small_inputs():
    extremes = torch.tensor([-torch.inf, -1e30, -40.0, -4.0, -1e-3, 0.0, 1e-3, 4.0, 40.0, 1e30, torch.inf])
    gate, up = torch.meshgrid(extremes, extremes, indexing="ij")
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        value = situ_glu(gate.to(dtype), up.to(dtype))
        assert value.dtype == dtype
        assert value.isfinite().all()
        assert float(value.abs().max()) <= 100
        assert float(value.abs().max()) > 99
    small = torch.linspace(-0.05, 0.05, 21, dtype=torch.float64)
    gate, up = torch.meshgrid(small, small, indexing="ij")
    torch.testing.assert_close(situ_glu(gate, up), nn.functional.silu(gate) * up, rtol=1e-4, atol=0)


@pytest.mark.parametrize("norm", [True, False])
def test_only_with_the_norm_is_the_scale_of_the_routing_weights_immaterial(norm):
    """Skipping the renormalisation of p, or a factor on it, changes u by a factor for each token."""
    moe = drawn(LatentMoE(config(latent_norm=norm, eps=1e-300)))
    x_BTD = inputs()
    plain = moe(x_BTD)
    route = moe.router.forward
    factor_N1 = torch.linspace(0.1, 10, 21, dtype=torch.float64)[:, None]

    def louder(x_ND: Tensor) -> tuple[Tensor, Tensor]:
        p_NK, experts_NK = route(x_ND)
        return p_NK * factor_N1, experts_NK

    moe.router.forward = louder  # type: ignore[method-assign]
    change = float(((moe(x_BTD) - plain).abs().max() / plain.abs().max()).detach())
    assert change < 1e-12 if norm else change > 0.5


@pytest.mark.parametrize("norm", [True, False])
def test_with_the_norm_the_experts_last_matrices_have_no_gradient_along_themselves(norm):
    """u, and so RMSNorm(u), does not notice the common scale of all E_down: Σ⟨W, ∂L/∂W⟩ = 0 (Euler)."""
    moe = drawn(LatentMoE(config(latent_norm=norm, eps=1e-300)))
    moe(inputs()).square().sum().backward()
    down = moe.experts.down_EFL
    along = float(nn.functional.cosine_similarity(down.detach().flatten(), down.grad.flatten(), dim=0))
    assert abs(along) < 1e-13 if norm else abs(along) > 1e-2


def test_readings_tell_how_the_scale_of_u_spreads_and_that_the_norm_takes_it_away():
    moe = drawn(LatentMoE(config()))
    with torch.no_grad():
        moe.norm.gamma.fill_(1.0)
    assert moe.readings == {}
    moe(inputs(batch=8, time=32)).sum().backward()
    moe.after_step()
    u = moe.readings["routed_rms"]
    assert u.shape == (3,)
    assert u[0] < u[1] < u[2]
    assert float(u[2] / u[0]) > 1.5
    torch.testing.assert_close(moe.readings["latent_rms"], torch.ones(3).double(), rtol=1e-2, atol=0)
    assert float(moe.readings["load"]) >= 1
    assert float(moe.readings["out_grad"]) == float(moe.out.weight.grad.norm())
    assert not any(reading.requires_grad for reading in moe.readings.values())
