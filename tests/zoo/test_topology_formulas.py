"""Each topology is the formula of its paper, and begins as the paper says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from zoo.parts import legal
from zoo.stacks import TINY, double, subs, tokens

from gradtui.presets import AttnResConfig, HyperConfig, ModelConfig
from gradtui.zoo.model import Transformer
from gradtui.zoo.topologies.multistream import sinkhorn


def written_out(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """The logits by the paper's formula, sublayer by sublayer."""
    config = model.config
    L = config.layers
    x = p = d = model.embedding(tokens_BT)
    for k, (_, sub) in enumerate(subs(model)):
        f, N = sub.branch, sub.norm
        layer = k // 2 + 1
        match config.topology:
            case "sandwich":
                x = x + sub.output_norm(f(N(x)))
            case "olmo2":
                x = x + N(f(x))
            case "deepnorm":
                x = N((2 * L) ** (1 / 4) * x + f(x))
            case "lns":
                x = x + f(N(x) / math.sqrt(layer))
            case "mix_ln":
                x = N(x + f(x)) if layer <= L // 4 else x + f(N(x))
            case "rezero":
                x = x + sub.alpha * f(x)
            case "keel" if k == 0:
                x = x + f(N(x))
            case "keel" if k == 1:
                x = sub.outer_norm(x + f(N(x)))
            case "keel":
                x = sub.outer_norm(2 * L * x + f(N(x)))
            case "residual_dual":
                y = f(p)
                p, d = N(p + y), d + y
            case "hybrid_norm" if k % 2 == 0:
                x = x + f(x)
            case "hybrid_norm":
                z = N(x)
                x = z + f(z)
            case "none":
                x = f(N(x))
    if config.topology == "residual_dual":
        assert model.final_norm is not None
        return model.head(p + model.final_norm.norm(d))  # type: ignore[no-any-return]
    return model.head(x if model.final_norm is None else model.final_norm(x))  # type: ignore[no-any-return]


WRITTEN_OUT = [
    "sandwich",
    "olmo2",
    "deepnorm",
    "lns",
    "mix_ln",
    "rezero",
    "keel",
    "residual_dual",
    "hybrid_norm",
    "none",
]


@pytest.mark.parametrize("topology", WRITTEN_OUT)
@pytest.mark.parametrize("layers", [2, 8])
def test_a_stack_is_the_papers_formula(topology, layers):
    model = double(legal(topology=topology, layers=layers))
    for parameter in model.parameters():  # no γ at 1, no α at 0
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    tokens_BT = tokens()[:, :-1]
    torch.testing.assert_close(model(tokens_BT), written_out(model, tokens_BT), rtol=1e-12, atol=1e-12)


def random_mixing(model: Transformer) -> None:
    for name, parameter in model.named_parameters():
        if name.split(".")[-1] in ("A_m", "A_r", "B", "W_m", "W_r", "W_b"):
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dynamic", [True, False])
def test_hyper_connections_are_the_papers_formula_token_by_token(dynamic):
    model = double(legal(topology="hyper_connections", hyper=HyperConfig(streams=3, dynamic=dynamic)))
    random_mixing(model)
    tokens_BT = tokens(1)[:, :-1]
    X = model.embedding(tokens_BT).unsqueeze(2).repeat(1, 1, 3, 1)
    for _, sub in subs(model):
        H = sub.stream_norm(X) if dynamic else X  # type: ignore[operator]
        read, mixed, given = [], [], []
        for t in range(X.shape[1]):
            A_m, A_r, B = sub.A_m, sub.A_r, sub.B
            if dynamic:
                A_m = A_m + sub.s_a * torch.tanh(H[0, t] @ sub.W_m)
                A_r = A_r + sub.s_a * torch.tanh(H[0, t] @ sub.W_r)
                B = B + sub.s_b * torch.tanh(H[0, t] @ sub.W_b)
            read.append(X[0, t].T @ A_m)
            mixed.append(A_r.T @ X[0, t])
            given.append(B)
        y = sub.branch(sub.norm(torch.stack(read)[None]))[0]
        X = torch.stack([mixed[t] + torch.outer(given[t], y[t]) for t in range(len(mixed))])[None]
    assert model.final_norm is not None
    expected = model.head(model.final_norm(X.sum(2)))
    torch.testing.assert_close(model(tokens_BT), expected, rtol=1e-12, atol=1e-12)


LIKE_PRE = {
    "hyper_connections": {"hyper": HyperConfig(streams=4)},
    "hyper_connections, weights alone": {"hyper": HyperConfig(streams=3, dynamic=False)},
    "mhc": {"hyper": HyperConfig(streams=4)},
    "mhc, weights alone": {"hyper": HyperConfig(streams=2, dynamic=False)},
    "attn_res": {},
    "attn_res, blocks": {"attn_res": AttnResConfig(block=2)},
}


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("case", LIKE_PRE)
def test_it_begins_as_pre_norm_and_parts_from_it_with_the_first_step(case, norm):
    """Loss and the gradients of all branch weights are those of Pre (ε = 0, since streams are scaled)."""
    topology = case.partition(",")[0]
    pre = double(ModelConfig(layers=4, width=16, heads=2, context=12, norm=norm, eps=TINY))
    other = double(
        ModelConfig(
            layers=4, width=16, heads=2, context=12, norm=norm, eps=TINY, topology=topology, **LIKE_PRE[case]
        )
    )
    a, b = pre.loss(tokens()), other.loss(tokens())
    assert abs(a.item() - b.item()) < 1e-13
    a.backward()
    b.backward()
    theirs = dict(other.named_parameters())
    branches = [(name, p) for name, p in pre.named_parameters() if ".branch." in name]
    assert len(branches) == 4 * 8
    for name, parameter in branches:
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-9, atol=1e-13)
    for model in (pre, other):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        optimizer.step()
    assert abs(pre.loss(tokens()).item() - other.loss(tokens()).item()) > 1e-6


def test_sinkhorn_matrices_are_doubly_stochastic_keep_the_mean_and_amplify_nothing():
    logits = torch.randn(50, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    M = sinkhorn(logits, 20)
    ones = torch.ones(50, 4, dtype=torch.float64)
    torch.testing.assert_close(M.sum(-2), ones, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(M.sum(-1), ones, rtol=1e-3, atol=1e-3)
    assert (M > 0).all()
    exact = sinkhorn(logits, 2000)
    torch.testing.assert_close(exact.sum(-1), ones, rtol=1e-10, atol=1e-10)
    assert torch.linalg.matrix_norm(exact, 2) == pytest.approx(1, abs=1e-10)
    X = torch.randn(50, 4, 8, dtype=torch.float64)
    torch.testing.assert_close((exact.mT @ X).mean(-2), X.mean(-2))


def test_sinkhorn_is_rows_then_columns_again_and_again():
    logits = torch.randn(3, 4, 4, dtype=torch.float64)
    M = logits.exp()
    for _ in range(5):
        M = M / M.sum(-1, keepdim=True)
        M = M / M.sum(-2, keepdim=True)
    torch.testing.assert_close(sinkhorn(logits, 5), M, rtol=1e-4, atol=1e-5)
    assert sinkhorn(logits * 1e4, 20).isfinite().all()
    assert sinkhorn(logits.float() * 1e4, 20).isfinite().all()


def test_rezero_starts_as_the_identity():
    model = Transformer(legal(topology="rezero", layers=4), 0)
    streams: list[Tensor] = []
    for site, module in model.sites():
        if site.stream is not None:
            module.register_forward_hook(lambda _m, _a, out: (out.retain_grad(), streams.append(out))[1])
    model.loss(tokens()).backward()
    assert all(torch.equal(x, streams[0]) for x in streams)
    assert all(torch.equal(x.grad, streams[0].grad) for x in streams)  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if ".branch." in name:
            assert not parameter.grad.any(), name
        elif name.endswith("alpha"):
            assert parameter.grad.abs() > 0, name
