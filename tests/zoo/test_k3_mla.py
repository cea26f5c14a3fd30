"""Gated MLA: against Kimi Linear's, and against its equations one query at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradtui.presets import MLAConfig, ModelConfig
from gradtui.zoo.mla import MLA

HEADS, HEAD, SHARED, WIDTH, Q_LATENT, KV_LATENT = 3, 8, 4, 24, 14, 10


def drawn(eps: float = 1e-5) -> MLA:
    options = MLAConfig(q_latent=Q_LATENT, kv_latent=KV_LATENT, shared_key=SHARED)
    mla = MLA(ModelConfig(width=WIDTH, heads=HEADS, eps=eps, mla=options)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mla.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return mla


def inputs(time: int = 9) -> Tensor:
    return torch.randn(2, time, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_the_book(mla: MLA, x_BTD: Tensor) -> Tensor:
    weights = dict(mla.named_parameters())

    def norm(x: Tensor, gamma: Tensor) -> Tensor:
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gamma

    q = norm(x_BTD @ weights["q_down.weight"].T, weights["q_norm.gamma"]) @ weights["q_up.weight"].T
    kv = norm(x_BTD @ weights["kv_down.weight"].T, weights["kv_norm.gamma"]) @ weights["kv_up.weight"].T
    shared = x_BTD @ weights["shared_key.weight"].T
    outputs = []
    for t in range(x_BTD.shape[1]):
        heads = []
        for h in range(HEADS):
            own = kv[:, : t + 1, 2 * HEAD * h : 2 * HEAD * (h + 1)]
            keys = torch.cat([own[..., :HEAD], shared[:, : t + 1]], dim=-1)
            query = q[:, t, (HEAD + SHARED) * h : (HEAD + SHARED) * (h + 1)]
            scores = (keys @ query[..., None])[..., 0] / math.sqrt(HEAD + SHARED)
            heads.append((torch.softmax(scores, dim=1)[..., None] * own[..., HEAD:]).sum(dim=1))
        gate = torch.sigmoid(x_BTD[:, t] @ weights["gate.weight"].T)
        outputs.append((gate * torch.cat(heads, dim=-1)) @ weights["out.weight"].T)
    return torch.stack(outputs, dim=1)


def test_gated_mla_is_its_equations_one_query_at_a_time():
    mla = drawn()
    mine, yours = inputs().requires_grad_(), inputs().requires_grad_()
    got, wanted = mla(mine), by_the_book(mla, yours)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    grads = torch.autograd.grad(got.square().sum(), [mine, *mla.parameters()])
    wanted_grads = torch.autograd.grad(wanted.square().sum(), [yours, *mla.parameters()])
    for a, b in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_with_a_half_open_gate_it_is_kimi_linears_attention():
    kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    from transformers import KimiLinearConfig

    config = KimiLinearConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=Q_LATENT,
        kv_lora_rank=KV_LATENT,
        qk_nope_head_dim=HEAD,
        qk_rope_head_dim=SHARED,
        v_head_dim=HEAD,
        num_hidden_layers=4,
        attention_bias=False,
    )
    config._attn_implementation = "eager"
    theirs = kimi.KimiLinearAttention(config, layer_idx=0)
    ours = drawn(eps=1e-6).float()  # the ε of their latent norms
    with torch.no_grad():
        ours.gate.weight.zero_()  # σ(0) = ½ everywhere
        for name, value in (
            ("q_a_proj", ours.q_down.weight),
            ("q_a_layernorm", ours.q_norm.gamma),
            ("q_b_proj", ours.q_up.weight),
            ("kv_a_proj_with_mqa", torch.cat([ours.kv_down.weight, ours.shared_key.weight])),
            ("kv_a_layernorm", ours.kv_norm.gamma),
            ("kv_b_proj", ours.kv_up.weight),
            ("o_proj", ours.out.weight / 2),
        ):
            getattr(theirs, name).weight.copy_(value)
    x, y = inputs().float().requires_grad_(), inputs().float().requires_grad_()
    future = torch.full((9, 9), -torch.inf).triu(1)[None, None]
    a, (b, _) = ours(x), theirs(y, attention_mask=future)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    a.square().sum().backward()
    b.square().sum().backward()
    for mine, yours in (
        (x.grad, y.grad),
        (ours.q_up.weight.grad, theirs.q_b_proj.weight.grad),
        (ours.kv_up.weight.grad, theirs.kv_b_proj.weight.grad),
        (ours.kv_norm.gamma.grad, theirs.kv_a_layernorm.weight.grad),
    ):
        assert float((mine - yours).norm()) <= 1e-5 * float(yours.norm())


def test_order_of_the_past_does_not_matter_without_a_position_encoding():
    mla = drawn()
    x_BTD = inputs()
    shuffled = torch.cat([x_BTD[:, :8].flip(1), x_BTD[:, 8:]], dim=1)
    torch.testing.assert_close(mla(shuffled)[:, 8], mla(x_BTD)[:, 8], rtol=1e-12, atol=1e-12)


def test_the_latent_norms_make_the_scale_of_the_way_down_immaterial():
    mla = drawn(eps=1e-300)
    before = mla(inputs())
    with torch.no_grad():
        mla.q_down.weight *= 3
        mla.kv_down.weight *= 0.2
    torch.testing.assert_close(mla(inputs()), before, rtol=1e-12, atol=1e-12)
