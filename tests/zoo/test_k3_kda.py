"""Kimi Delta Attention: chunked against step by step, against fla's and transformers', and what its parts do."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import KDAConfig, ModelConfig
from gradtui.zoo.kda import CHUNK, FASTEST, KDA, delta_rule

BATCH, HEADS, HEAD = 2, 3, 8
WIDTH = HEADS * HEAD


def config(eps: float = 1e-5, **options) -> ModelConfig:
    return ModelConfig(width=WIDTH, heads=HEADS, context=128, eps=eps, kda=KDAConfig(**options))


def drawn(seed: int = 0, **options) -> KDA:
    kda = KDA(config(**options)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in kda.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return kda


def ingredients(time: int, *, dtype: torch.dtype = torch.float64, decay: float | None = None) -> list[Tensor]:
    """q, k, v, g and β as a layer would make them; `decay` sets every g."""
    generator = torch.Generator().manual_seed(time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    shape = (BATCH, HEADS, time, HEAD)
    q, k = (nn.functional.normalize(normal(*shape), dim=-1) for _ in range(2))
    g = -FASTEST * torch.sigmoid(2 * normal(*shape)) if decay is None else torch.full(shape, decay)
    parts = [q * HEAD**-0.5, k, normal(*shape), g, torch.sigmoid(normal(BATCH, HEADS, time))]
    return [part.to(dtype).requires_grad_() for part in parts]


def step_by_step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Equation 1 as it stands, with its matrices."""
    identity = torch.eye(HEAD, dtype=q.dtype)
    S = torch.zeros(BATCH, HEADS, HEAD, HEAD, dtype=q.dtype)
    outputs = []
    for t in range(q.shape[2]):
        k_t, v_t, beta_t = k[:, :, t, :, None], v[:, :, t, None, :], beta[:, :, t, None, None]
        forget = torch.diag_embed(g[:, :, t].exp())
        S = (identity - beta_t * k_t @ k_t.mT) @ forget @ S + beta_t * k_t @ v_t
        outputs.append((S.mT @ q[:, :, t, :, None])[..., 0])
    return torch.stack(outputs, dim=2)


@pytest.mark.parametrize("time", [1, CHUNK - 1, CHUNK, CHUNK + 1, 40])
def test_chunks_do_what_one_step_at_a_time_does(time):
    parts = ingredients(time)
    wanted, got = step_by_step(*parts), delta_rule(*parts)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    weight = torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for a, b in zip(
        torch.autograd.grad((got * weight).sum(), parts),
        torch.autograd.grad((wanted * weight).sum(), parts),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("decay", [0.0, -1e-3, -FASTEST])
def test_single_precision_holds_from_no_forgetting_to_the_fastest(decay):
    """A whole chunk of the fastest decay is e⁻⁸⁰: what fp32 can just hold, and why no channel may be faster."""
    parts, exact = ingredients(64, dtype=torch.float32, decay=decay), ingredients(64, decay=decay)
    got, wanted = delta_rule(*parts), step_by_step(*exact)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(torch.autograd.grad(got.sum(), parts), torch.autograd.grad(wanted.sum(), exact), strict=True):
        assert a.isfinite().all()
        assert float((a - b).norm()) <= 1e-4 * max(1.0, float(b.norm()))


def test_the_delta_rule_is_flas_naive_recurrence_and_chunks():
    """Loaded by path: importing the package needs triton."""
    pytest.importorskip("einops")
    package = importlib.util.find_spec("fla")
    if package is None or not package.submodule_search_locations:
        pytest.skip("fla-core is not installed")
    path = Path(package.submodule_search_locations[0], "ops", "kda", "naive.py")
    spec = importlib.util.spec_from_file_location("fla_naive_kda", path)
    assert spec is not None
    assert spec.loader is not None
    naive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(naive)
    parts = ingredients(64, dtype=torch.float32)
    ours = delta_rule(*parts)
    # Its chunks overflow above the diagonal, backwards, where decay is fast and they are longer than ours.
    for theirs, options in ((naive.naive_recurrent_kda, {}), (naive.naive_chunk_kda, {"chunk_size": CHUNK})):
        value, _ = theirs(*(part.transpose(1, 2) for part in parts), scale=1.0, **options)
        torch.testing.assert_close(ours, value.transpose(1, 2), rtol=1e-5, atol=1e-5)
        mine = torch.autograd.grad(ours.square().sum(), parts, retain_graph=True)
        yours = torch.autograd.grad(value.square().sum(), parts)
        for a, b in zip(mine, yours, strict=True):
            assert float((a - b).norm()) <= 1e-5 * max(1.0, float(b.norm()))


class Bounded(nn.Module):
    """Kimi Linear's place for the decay, with K3's decay in it."""

    def __init__(self, kda: KDA) -> None:
        super().__init__()
        self.kda = kda

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.kda.log_decay(x_BTD).transpose(1, 2)


def test_the_layer_is_kimi_linears_but_for_the_decay():
    kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    from transformers import KimiLinearConfig

    theirs = kimi.KimiLinearDeltaAttention(
        KimiLinearConfig(
            hidden_size=WIDTH, linear_head_dim=HEAD, linear_num_heads=HEADS, rms_norm_eps=1e-5, num_hidden_layers=4
        ),
        layer_idx=0,
    )
    ours = drawn().float()
    q, k, v = ours.qkv.weight.detach().chunk(3)
    with torch.no_grad():
        for name, value in (("q", q), ("k", k), ("v", v), ("b", ours.beta.weight), ("o", ours.out.weight)):
            getattr(theirs, f"{name}_proj").weight.copy_(value)
        theirs.conv1d.weight.copy_(ours.conv.weight.T[:, None])
        theirs.o_norm.weight.copy_(ours.norm.gamma)
        # Their gate has low rank; ours, cut to that rank, can be copied.
        ours.gate.weight.copy_(theirs.g_b_proj.weight @ theirs.g_a_proj.weight)
        # Their chunks of 64 take differences of long sums of decays, exact enough in fp32 only if those are slow.
        ours.decay_bias -= 5
    theirs.forget_gate = Bounded(ours)
    generator = torch.Generator().manual_seed(5)
    x_BTD = torch.randn(BATCH, 40, WIDTH, generator=generator)
    x, y = x_BTD.clone().requires_grad_(), x_BTD.clone().requires_grad_()
    a, b = ours(x), theirs(y)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    a.square().sum().backward()
    shared_decay = {name: p.grad.clone() for name, p in ours.named_parameters() if name.startswith("decay")}
    ours.zero_grad()
    b.square().sum().backward()
    for name, parameter in ours.named_parameters():
        if name.startswith("decay"):
            assert float((shared_decay[name] - parameter.grad).norm()) <= 1e-5 * float(parameter.grad.norm())
    assert float((x.grad - y.grad).norm()) <= 1e-5 * float(y.grad.norm())


def by_the_book(kda: KDA, x_BTD: Tensor, *, norm: bool) -> Tensor:
    """Equations 1 to 6 with loops over steps and taps."""
    weights = dict(kda.named_parameters())
    B, T, D = x_BTD.shape
    projected = x_BTD @ weights["qkv.weight"].T
    filtered = torch.zeros_like(projected)
    taps = len(weights["conv.weight"])
    for t in range(T):
        for back in range(min(t + 1, taps)):
            filtered[:, t] = filtered[:, t] + weights["conv.weight"][taps - 1 - back] * projected[:, t - back]
    parts = (filtered / (1 + torch.exp(-filtered))).chunk(3, dim=-1)
    q, k, v = (part.reshape(B, T, HEADS, HEAD).transpose(1, 2) for part in parts)
    q, k = (part / torch.sqrt(part.square().sum(-1, keepdim=True) + 1e-6) for part in (q, k))
    beta = torch.sigmoid(x_BTD @ weights["beta.weight"].T).transpose(1, 2)
    z = x_BTD @ weights["decay_down.weight"].T @ weights["decay_up.weight"].T + weights["decay_bias"]
    z = z.reshape(B, T, HEADS, HEAD).transpose(1, 2)
    slope = torch.exp(weights["decay_log_slope"]).reshape(1, HEADS, 1, 1)
    o = step_by_step(q / math.sqrt(HEAD), k, v, -5 / (1 + torch.exp(-slope * z)), beta)
    if norm:
        o = o / torch.sqrt(o.square().mean(-1, keepdim=True) + 1e-5) * weights["norm.gamma"]
    gate = torch.sigmoid(x_BTD @ weights["gate.weight"].T)
    return (gate * o.transpose(1, 2).reshape(B, T, D)) @ weights["out.weight"].T


@pytest.mark.parametrize("norm", [True, False])
def test_the_layer_is_the_reports_equations(norm):
    kda = drawn(output_norm=norm)
    x_BTD = torch.randn(BATCH, 21, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mine, yours = x_BTD.clone().requires_grad_(), x_BTD.clone().requires_grad_()
    got, wanted = kda(mine), by_the_book(kda, yours, norm=norm)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    grads = torch.autograd.grad(got.square().sum(), [mine, *kda.parameters()])
    wanted_grads = torch.autograd.grad(wanted.square().sum(), [yours, *kda.parameters()])
    for a, b in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_no_output_depends_on_the_future_and_a_prefix_has_the_outputs_of_the_whole():
    kda = drawn()
    x_BTD = torch.randn(BATCH, 45, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = kda(x_BTD)
    changed = x_BTD.clone()
    changed[:, 20:] *= -2
    assert torch.equal(kda(changed)[:, :20], whole[:, :20])
    torch.testing.assert_close(kda(x_BTD[:, :20]), whole[:, :20], rtol=1e-12, atol=1e-12)


def test_a_value_written_once_is_read_back_whole_and_a_second_one_replaces_it():
    """What the delta rule is for: k is written with β = 1, so what was stored under it is taken out first."""
    _, k, v, _, _ = (part.detach() for part in ingredients(2))
    k = k[:, :, :1].expand(-1, -1, 2, -1)
    nothing_forgotten, all_of_it = torch.zeros_like(k), torch.ones(BATCH, HEADS, 2, dtype=torch.float64)
    o = delta_rule(k, k, v, nothing_forgotten, all_of_it)
    torch.testing.assert_close(o, v, rtol=1e-12, atol=1e-12)


def test_every_channel_starts_by_forgetting_between_a_thousandth_and_a_tenth_a_step():
    kda = KDA(config())
    with torch.no_grad():
        kda.decay_up.weight.zero_()
        g_BHTK = kda.log_decay(torch.zeros(1, 1, WIDTH))
    wanted_K = torch.logspace(-3, -1, HEAD)
    torch.testing.assert_close(-g_BHTK[0, :, 0], wanted_K.expand(HEADS, HEAD), rtol=1e-4, atol=0)


def test_decay_stays_within_its_bounds_whatever_the_input():
    kda = drawn()
    loud = 1e3 * torch.randn(1, 50, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    g = kda.log_decay(loud)
    assert g.min().item() >= -FASTEST
    assert g.max().item() <= 0


@pytest.mark.parametrize("norm", [True, False])
def test_the_output_norm_takes_the_scale_of_each_heads_output_away(norm):
    kda = drawn(output_norm=norm, eps=1e-12)
    x_BTD = torch.randn(BATCH, 30, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if norm:
        with torch.no_grad():
            kda.norm.gamma.fill_(1.0)
    kda(x_BTD)
    before, after = kda.readings["head_rms"], kda.readings["normed_head_rms"]
    assert float(before[2] / before[0]) > 2
    if norm:
        torch.testing.assert_close(after, torch.ones(3).double(), rtol=1e-6, atol=0)
    else:
        assert torch.equal(before, after)
