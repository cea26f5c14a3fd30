"""What each topology must show exactly, or at step 0: identities, zeros, and laws of the stream's size."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from zoo.parts import legal

from gradtui.presets import AttnResConfig, HyperConfig, ModelConfig
from gradtui.presets.parts import TOPOLOGIES
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Layer, Transformer
from gradtui.zoo.topologies.base import Sublayer
from gradtui.zoo.topologies.multistream import sinkhorn

WITHOUT_TRUNK = {"none", "attn_res"}
TINY = 1e-300  # as good as no ε: then what a norm cannot see has no effect at all


def tokens(batch: int = 2) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(0, batch, 12, 0)


def double(config: ModelConfig, seed: int = 0) -> Transformer:
    return Transformer(config, seed).double()


def rms(x: Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def subs(model: Transformer) -> list[tuple[str, Sublayer]]:
    return [(site.name, module) for site, module in model.sites() if isinstance(module, Sublayer)]


def stream(state: object) -> Tensor:
    """What a probe measures of a state."""
    return state if isinstance(state, Tensor) else state[0]  # type: ignore[index]


def shares(model: Transformer, tokens_BS: Tensor) -> dict[str, float]:
    """Trunk share per sublayer: ‖what came along the trunk‖ / ‖what the sublayer's output got‖."""
    trunks: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def listen(name: str, module: Sublayer) -> None:
        def trunk_listener(trunk: Tensor) -> None:
            trunk.retain_grad()
            trunks[name] = trunk

        def after(_module: nn.Module, _args: object, output: object) -> None:
            outputs[name] = stream(output)
            outputs[name].retain_grad()

        module.trunk_listener = trunk_listener
        module.register_forward_hook(after)

    for name, module in subs(model):
        listen(name, module)
    model.loss(tokens_BS).backward()
    return {name: float(trunk.grad.norm() / outputs[name].grad.norm()) for name, trunk in trunks.items()}  # type: ignore[union-attr]


WITH_TRUNK = [name for name in TOPOLOGIES if name not in WITHOUT_TRUNK]


@pytest.mark.parametrize("topology", WITH_TRUNK)
def test_listening_to_the_trunk_changes_nothing_to_the_last_bit(topology):
    config = legal(topology=topology, layers=4)
    plain, listened = Transformer(config, 0), Transformer(config, 0)
    calls: list[Tensor] = []
    for _, module in subs(listened):
        module.trunk_listener = calls.append
    a, b = plain.loss(tokens()), listened.loss(tokens())
    assert torch.equal(a, b)
    assert len(calls) == 8
    a.backward()
    b.backward()
    for one, other in zip(plain.parameters(), listened.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("topology", WITH_TRUNK)
def test_what_came_along_the_trunk_is_the_gradient_without_the_branch(topology):
    """Cut the branch out of the graph, keep its value: what x still gets is the trunk's part, and no more."""
    config = legal(topology=topology, layers=3)
    sub = double(config).layers[1].feedforward
    enter = type(sub).enter
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    state = enter(x, config)
    leaf = stream(state).detach().clone().requires_grad_()
    state = leaf if isinstance(state, Tensor) else state._replace(p=leaf)
    views: list[Tensor] = []
    sub.trunk_listener = views.append
    out = stream(sub(state))
    g = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    views[0].retain_grad()
    (whole,) = torch.autograd.grad(out, leaf, g, retain_graph=True)
    (along,) = torch.autograd.grad(out, views[0], g)
    sub.trunk_listener = None
    sub.branch.register_forward_hook(lambda _m, _a, y: y.detach())
    if topology in ("hyper_connections", "mhc"):
        A_m, A_r, B = (part.detach() for part in sub.connections(leaf))
        sub.connections = lambda _X: (A_m, A_r, B)
    (cut,) = torch.autograd.grad(stream(sub(state)), leaf, g)
    torch.testing.assert_close(along, cut, rtol=1e-12, atol=1e-14)
    if topology != "rezero":
        assert (whole - along).norm() > 1e-3 * whole.norm()


@pytest.mark.parametrize("topology", ["pre", "sandwich", "olmo2", "lns", "rezero"])
def test_the_trunk_passes_every_gradient_on_where_no_norm_stands_on_it(topology):
    found = shares(Transformer(legal(topology=topology, layers=3), 0), tokens())
    assert set(found.values()) == {1.0}


def test_in_post_ln_the_trunk_passes_on_what_the_jacobian_of_the_norm_leaves():
    model = double(legal(topology="post", layers=3))
    kept: dict[str, Tensor] = {}
    for name, module in subs(model):
        module.norm.register_forward_hook(lambda _m, args, out, name=name: kept.update({name: args[0]}))
        module.register_forward_hook(
            lambda _m, _a, out, name=name: (out.retain_grad(), kept.update({f"{name}+": out}))[1]
        )
    found = shares(model, tokens())
    for name, module in subs(model):
        out = kept[f"{name}+"]
        assert out.grad is not None
        _, back = torch.autograd.functional.vjp(module.norm, kept[name].detach(), out.grad)
        assert found[name] == pytest.approx(float(back.norm() / out.grad.norm()), rel=1e-12)
        assert found[name] < 1


def test_a_mixed_stack_has_both_kinds_of_trunk():
    found = shares(Transformer(legal(topology="mix_ln", layers=4), 0), tokens())
    assert [found[f"layers.{layer}.mixer"] == 1 for layer in range(4)] == [False, True, True, True]


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


def product(parameter: Tensor) -> float:
    """⟨W, ∂L/∂W⟩ relative to ‖W‖ ‖∂L/∂W‖."""
    assert parameter.grad is not None
    return float((parameter.detach() * parameter.grad).sum() / (parameter.detach().norm() * parameter.grad.norm()))


@pytest.mark.parametrize("topology", ["sandwich", "olmo2"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_norm_behind_a_branch_makes_its_last_matrix_blind_to_scale(topology, norm):
    """⟨W, ∂W⟩ = 0 for W_O, W_V and W_down, and not for the same matrices under Pre."""
    model, pre = (
        double(ModelConfig(layers=2, width=16, heads=2, context=12, norm=norm, topology=name, eps=TINY))
        for name in (topology, "pre")
    )
    for each in (model, pre):
        each.loss(tokens()).backward()
    for layer in model.layers:
        assert isinstance(layer, Layer)
        for branch in (layer.mixer.branch, layer.feedforward.branch):
            assert abs(product(branch.out.weight)) < 1e-13  # type: ignore[union-attr]
        qkv = layer.mixer.branch.qkv.weight
        values, gradient = qkv.detach()[32:], qkv.grad[32:]  # type: ignore[index]
        assert abs(float((values * gradient).sum())) < 1e-13
    assert all(abs(product(layer.feedforward.branch.out.weight)) > 1e-4 for layer in pre.layers)


@pytest.mark.parametrize("qk_norm", ["per_head", "full"])
def test_normed_queries_and_keys_make_their_matrices_blind_to_scale(qk_norm):
    """⟨W, ∂W⟩ = 0: head by head where each head is normed, over all heads where all are normed together."""
    model = double(ModelConfig(layers=2, width=16, heads=2, context=12, qk_norm=qk_norm, eps=TINY))
    model.loss(tokens()).backward()
    for layer in model.layers:
        weight, gradient = layer.mixer.branch.qkv.weight.detach(), layer.mixer.branch.qkv.weight.grad
        by_head = (weight * gradient)[:32].reshape(2, 2, -1).sum(-1)  # (q or k, head)
        if qk_norm == "per_head":
            assert by_head.abs().max() < 1e-15
        else:
            assert by_head.sum(1).abs().max() < 1e-15
            assert by_head.abs().max() > 1e-9
        assert abs(float((weight * gradient)[32:].sum())) > 1e-9


@pytest.mark.parametrize("norm", ["dyt", "derf"])
def test_elementwise_norms_are_not_blind_to_scale(norm):
    model = double(ModelConfig(layers=2, width=16, heads=2, context=12, norm=norm))
    model.loss(tokens()).backward()
    writers = [p for name, p in model.named_parameters() if name.startswith("embedding") or ".branch.out." in name]
    assert abs(sum(float((p.detach() * p.grad).sum()) for p in writers if p.grad is not None)) > 1e-4


WIDE = {"width": 128, "heads": 4, "context": 32, "init": "fan_in", "norm": "rmsnorm"}


def feedforward_stack(topology: str, layers: int, seed: int = 0, **parts) -> tuple[Transformer, list[float]]:
    """A stack whose mixers are left out, and RMS(x) after 0 … L feed-forwards, for a stream that begins at 1."""
    config = legal(**{**WIDE, "topology": topology, "layers": layers, **parts})
    model = Transformer(config, seed)
    x_BTD = torch.randn(4, 32, 128, generator=torch.Generator().manual_seed(seed))
    state = type(model.layers[0].feedforward).enter(x_BTD, config)
    sizes = [rms(stream(state))]
    for layer in model.layers:
        assert isinstance(layer, Layer)
        state = layer.feedforward(state)
        sizes.append(rms(stream(state)))
    return model, sizes


@pytest.mark.parametrize("topology", ["sandwich", "olmo2"])
def test_with_normed_outputs_the_stream_is_the_root_of_the_number_of_sublayers(topology):
    _, sizes = feedforward_stack(topology, 12)
    for k, size in enumerate(sizes):
        assert size == pytest.approx(math.sqrt(1 + k), rel=0.08)


def test_layernorm_scaling_makes_the_stream_grow_like_the_harmonic_numbers():
    _, sizes = feedforward_stack("lns", 12)
    for k, size in enumerate(sizes):
        harmonic = sum(1 / layer for layer in range(1, k + 1))
        assert size == pytest.approx(math.sqrt(1 + harmonic / 2), rel=0.05)


@pytest.mark.parametrize("topology", ["deepnorm", "keel", "residual_dual"])
def test_with_a_norm_on_the_trunk_the_stream_has_rms_one(topology):
    init = {"init": "xavier"} if topology == "deepnorm" else {}
    _, sizes = feedforward_stack(topology, 12, **init)
    assert sizes[1:] == pytest.approx([1.0] * 12, abs=1e-4)


def test_keels_trunk_keeps_nearly_all_of_the_gradient_where_post_loses_a_third_a_sublayer():
    """α/√(α² + 1) a sublayer against 1/√(1 + v), v = ½ the variance that a ReLU branch adds."""
    losses = {}
    for topology in ("keel", "post"):
        config = legal(**{**WIDE, "topology": topology, "layers": 12})
        tokens_BS = load_corpus("stdlib", context=32, seed=0).batch(0, 4, 32, 0)
        found = shares(Transformer(config, 0), tokens_BS)
        losses[topology] = [found[f"layers.{layer}.feedforward"] for layer in range(1, 12)]
    # γ = 1 and RMS(x) ≈ 1 before the sum, so the norm divides by what the branch has added; Keel's α cancels.
    assert min(losses["keel"]) > 0.98
    assert max(losses["post"]) < 0.95


def olmo_products(qk_norm: str, seed: int) -> float:
    """RMS(x_l) · ‖g_l‖ at the input over that at the output of an OLMo 2 stack."""
    config = legal(**{**WIDE, "topology": "olmo2", "layers": 12, "qk_norm": qk_norm})
    model = Transformer(config, seed)
    x_BTD = torch.randn(4, 32, 128, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    state, streams = x_BTD, [x_BTD]
    for layer in model.layers:
        state = layer(state)
        state.retain_grad()
        streams.append(state)
    assert model.final_norm is not None
    logits_BTV = model.head(model.final_norm(state))
    targets = torch.randint(256, (4, 32), generator=torch.Generator().manual_seed(seed))
    nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets.flatten()).backward()
    products = [rms(x) * float(x.grad.norm()) for x in streams]  # type: ignore[union-attr]
    return products[0] / products[-1]


def test_an_output_norm_needs_normed_queries_and_keys():
    """Without them logits grow with the square of the stream, and the gradient rises towards the input."""
    without = sum(olmo_products("none", seed) for seed in range(2)) / 2
    with_norms = sum(olmo_products("full", seed) for seed in range(2)) / 2
    assert without > 3
    assert with_norms < 1.5


def test_hybrid_norm_norms_queries_keys_and_values_of_each_head():
    attention = Transformer(legal(topology="hybrid_norm"), 0).layers[0].mixer.branch
    kept: dict[str, Tensor] = {}
    for name in "qkv":
        getattr(attention, f"{name}_norm").register_forward_hook(lambda _m, _a, out, n=name: kept.update({n: out}))
    attention(3 * torch.randn(2, 12, 16))
    for value in kept.values():
        assert value.shape == (2, 2, 12, 8)
        torch.testing.assert_close(value.square().mean(-1), torch.ones(2, 2, 12), rtol=1e-3, atol=1e-3)
    assert len(kept) == 3


@pytest.mark.parametrize("qk_norm", ["per_head", "full"])
def test_qk_norm_bounds_the_logits_whatever_the_stream(qk_norm):
    """Then attention does not care how large its input is, but for its values."""
    attention = Transformer(legal(qk_norm=qk_norm, eps=1e-30), 0).double().layers[0].mixer.branch
    x_BTD = torch.randn(2, 12, 16, dtype=torch.float64)
    torch.testing.assert_close(attention(1000 * x_BTD), 1000 * attention(x_BTD), rtol=1e-9, atol=1e-9)


def last_feedforward_gradient(topology: str, layers: int, seed: int) -> float:
    """‖∂L/∂W₂‖ of the last layer, whose mixers are left out, for random targets."""
    config = legal(**{**WIDE, "topology": topology, "layers": layers, "norm": "layernorm"})
    model = Transformer(config, seed)
    generator = torch.Generator().manual_seed(seed)
    x_BTD = torch.randn(4, 32, 128, generator=generator)
    for layer in model.layers:
        x_BTD = layer.feedforward(x_BTD)
    x_BTD = x_BTD if model.final_norm is None else model.final_norm(x_BTD)
    targets = torch.randint(256, (4 * 32,), generator=generator)
    nn.functional.cross_entropy(model.head(x_BTD).flatten(0, 1), targets).backward()
    gradient = model.layers[-1].feedforward.branch.out.weight.grad
    return float(gradient.norm())


@pytest.mark.parametrize(("topology", "low", "high"), [("post", -0.1, 0.25), ("pre", -0.5, -0.3)])
def test_the_last_gradient_falls_with_depth_in_pre_ln_and_not_in_post_ln(topology, low, high):
    """Xiong et al. 2020, theorem 1: O(1) in the number of layers under Post, O(1/√L) under Pre."""
    depths = (3, 6, 12, 24)
    logs = [math.log(sum(last_feedforward_gradient(topology, L, seed) for seed in range(2))) for L in depths]
    slope = torch.linalg.lstsq(
        torch.tensor([[math.log(L), 1.0] for L in depths]), torch.tensor(logs)[:, None]
    ).solution[0]
    assert low < float(slope) < high


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_a_matrix_that_is_blind_to_scale_has_a_gradient_that_shrinks_as_it_grows(factor):
    """∇L(cW) = ∇L(W)/c: the larger the weights, the smaller the steps. Not so under Pre."""
    for topology, blind in (("sandwich", True), ("pre", False)):
        config = ModelConfig(layers=2, width=16, heads=2, context=12, topology=topology, eps=TINY)
        gradients = []
        for c in (1.0, factor):
            model = double(config)
            weight = model.layers[1].feedforward.branch.out.weight
            weight.data *= c
            model.loss(tokens()).backward()
            gradients.append(weight.grad)
        assert torch.allclose(gradients[1], gradients[0] / factor, rtol=1e-9, atol=1e-15) == blind
