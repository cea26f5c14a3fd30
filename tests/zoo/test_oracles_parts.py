"""With the same weights our norms and connections are those of other libraries, in float64."""

from __future__ import annotations

import importlib
import math
import sys
import types

import pytest
import torch
from torch import Tensor, nn
from zoo.oracles import (
    BATCH,
    HEADS,
    TIME,
    TOLERANCE,
    WIDTH,
    of_transformers,
    theirs,
)

from gradtui.presets import HyperConfig, ModelConfig
from gradtui.zoo.model import Transformer
from gradtui.zoo.norms import Derf, DyT
from gradtui.zoo.topologies.base import SublayerPosition
from gradtui.zoo.topologies.multistream import HyperConnections, ManifoldHyperConnections

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize(("ours", "name"), [(DyT, "DynamicTanh"), (Derf, "Derf")])
def test_elementwise_norms_are_those_of_x_transformers(ours, name):
    pytest.importorskip("x_transformers")
    module = pytest.importorskip("x_transformers.x_transformers")
    oracle = getattr(module, name)(WIDTH).double()
    copies = {key: theirs(key) for key in ("gamma", "beta")}
    mine = ours(WIDTH, 1e-5)
    with torch.no_grad():
        (oracle.pre_tanh_scale if name == "DynamicTanh" else oracle.alpha).copy_(mine.alpha)
    for parameter in (mine.gamma, mine.beta, *([mine.shift] if name == "Derf" else [])):
        nn.init.normal_(parameter)
    with torch.no_grad():
        oracle.gamma.copy_(mine.gamma)
        oracle.beta.copy_(mine.beta)
        if name == "Derf":
            oracle.s.copy_(mine.shift)
    assert copies
    x = torch.randn(BATCH, TIME, WIDTH)
    torch.testing.assert_close(mine(x), oracle(x), rtol=TOLERANCE, atol=TOLERANCE)
    g = torch.randn_like(x)
    a = torch.autograd.grad(mine(x), list(mine.parameters()), g)
    theirs_in_our_order = (
        [oracle.pre_tanh_scale, oracle.gamma, oracle.beta]
        if name == "DynamicTanh"
        else [oracle.alpha, oracle.s, oracle.gamma, oracle.beta]
    )
    b = torch.autograd.grad(oracle(x), theirs_in_our_order, g)
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def position(**parts) -> SublayerPosition:
    config = ModelConfig(width=WIDTH, heads=HEADS, context=TIME, norm="none", **parts)
    return SublayerPosition(3, "feedforward", config)


class OurRMSNormWithoutEps(nn.Module):
    """x √D / ‖x‖ · (γ + 1): the norm inside the oracle, so that both compute the same connections."""

    def __init__(self, gamma: Tensor) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1) * math.sqrt(WIDTH) * (self.gamma + 1)


def test_hyper_connections_are_those_of_the_package():
    package = pytest.importorskip("hyper_connections")
    branch = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    oracle = package.HyperConnections(4, dim=WIDTH, branch=branch, layer_index=3).double()
    ours = HyperConnections(branch, nn.Identity, position(hyper=HyperConfig(streams=4)))
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        ours.A_m.copy_(oracle.static_alpha[:, 0])
        ours.A_r.copy_(oracle.static_alpha[:, 1:])
        ours.B.copy_(oracle.static_beta)
        ours.W_m.copy_(oracle.dynamic_alpha_fn[:, 0])
        ours.W_r.copy_(oracle.dynamic_alpha_fn[:, 1:])
        ours.W_b.copy_(oracle.dynamic_beta_fn)
        ours.s_a.copy_(oracle.dynamic_alpha_scale)
        ours.s_b.copy_(oracle.dynamic_beta_scale)
    ours.stream_norm = OurRMSNormWithoutEps(oracle.norm.gamma)
    X_BTnD = torch.randn(BATCH, TIME, 4, WIDTH)
    streams = X_BTnD.permute(0, 2, 1, 3).flatten(0, 1)  # (batch · stream, time, width)
    expected = oracle(streams).unflatten(0, (BATCH, 4)).permute(0, 2, 1, 3)
    torch.testing.assert_close(ours(X_BTnD), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_mhc_connections_are_those_of_deepseek_v4():
    module = of_transformers("deepseek_v4")
    config = types.SimpleNamespace(
        hc_mult=4, hc_sinkhorn_iters=20, hc_eps=0.0, rms_norm_eps=1e-5, hidden_size=WIDTH
    )
    oracle = module.DeepseekV4HyperConnection(config)
    ours = ManifoldHyperConnections(nn.Identity(), nn.Identity, position(hyper=HyperConfig(streams=4)))
    for parameter in oracle.parameters():
        nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        for mine, begin, end in (("pre", 0, 4), ("post", 4, 8), ("res", 8, 24)):
            getattr(ours, f"b_{mine}").copy_(oracle.base[begin:end].view_as(getattr(ours, f"b_{mine}")))
            getattr(ours, f"W_{mine}").copy_(oracle.fn[begin:end].T)
        ours.a.copy_(oracle.scale)
    X_BTnD = torch.randn(BATCH, TIME, 4, WIDTH)
    post, comb, collapsed = oracle(X_BTnD)
    pre, res, mine_post = ours.connections(X_BTnD)
    for a, b in [(mine_post, post), (res, comb), ((pre.unsqueeze(-1) * X_BTnD).sum(2), collapsed)]:
        torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-5, atol=1e-5)  # the oracle computes in float32


@pytest.fixture
def torchscale_decoder(monkeypatch) -> types.ModuleType:
    """torchscale's decoder; what it imports and does not use here need not be installed."""
    pytest.importorskip("torchscale")
    for name, attributes in {
        "fairscale": (),
        "fairscale.nn": ("checkpoint_wrapper", "wrap"),
        "timm": (),
        "timm.models": (),
        "timm.models.layers": ("drop_path",),
    }.items():
        stub = types.ModuleType(name)
        for attribute in attributes:
            setattr(stub, attribute, lambda x, *_, **__: x)
        monkeypatch.setitem(sys.modules, name, stub)
    return importlib.import_module("torchscale.architecture.decoder")


@pytest.mark.parametrize("layers", [1, 12, 100])
def test_deepnorms_constants_are_torchscales(torchscale_decoder, layers):
    config_module = importlib.import_module("torchscale.architecture.config")
    args = config_module.DecoderConfig(
        deepnorm=True, decoder_layers=layers, decoder_embed_dim=16, decoder_attention_heads=2, vocab_size=-1
    )
    oracle = torchscale_decoder.DecoderLayer(args, depth=0)
    ours = Transformer(ModelConfig(layers=layers, width=16, heads=2, context=8, topology="deepnorm"), seed=0)
    plain = Transformer(ModelConfig(layers=layers, width=16, heads=2, context=8, topology="post"), seed=0)
    assert ours.layers[0].mixer.alpha == pytest.approx(oracle.alpha, rel=1e-12)
    ratios = {name: weight / plain.state_dict()[name] for name, weight in ours.state_dict().items()}
    beta = (8 * layers) ** -0.25
    scaled = {"mixer.branch.out.weight", "feedforward.branch.up.weight", "feedforward.branch.out.weight"}
    for name in scaled:
        torch.testing.assert_close(ratios[f"layers.0.{name}"], torch.full_like(ratios[f"layers.0.{name}"], beta))
    qkv = ratios["layers.0.mixer.branch.qkv.weight"]
    torch.testing.assert_close(qkv[:32], torch.ones_like(qkv[:32]))
    torch.testing.assert_close(qkv[32:], torch.full_like(qkv[32:], beta))
