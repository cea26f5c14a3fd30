"""With the same weights our blocks are other people's blocks: outputs and all gradients, in float64.

What is not installed is skipped; the extra `test-oracles` has them all.
"""

from __future__ import annotations

import importlib
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import HyperConfig, ModelConfig
from gradtui.zoo.model import Layer, Transformer
from gradtui.zoo.norms import Derf, DyT
from gradtui.zoo.topologies.base import SublayerPosition
from gradtui.zoo.topologies.multistream import HyperConnections, ManifoldHyperConnections

BATCH, TIME, WIDTH, HEADS, HIDDEN = 2, 9, 32, 4, 96
K = WIDTH // HEADS
SWIGLU = HIDDEN * 2 // 3
TOLERANCE = 1e-10
LOOSE = 1e-5  # for oracles whose norms compute in float32 whatever they are given


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@dataclass(frozen=True)
class Copy:
    """One of our parameters: theirs of these names, one above the other; transposed; as 1 + w."""

    names: tuple[str, ...]
    transpose: bool = False
    plus: float = 0.0

    def stack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        found = torch.cat([tensors[name] for name in self.names])
        return found.T if self.transpose else found


def theirs(*names: str, transpose: bool = False, plus: float = 0.0) -> Copy:
    return Copy(names, transpose, plus)


def assert_same(
    ours: nn.Module,
    oracle: nn.Module,
    copies: Mapping[str, Copy],
    call: Callable[[Tensor], Tensor],
    tolerance: float = TOLERANCE,
) -> None:
    """Copy random weights of the oracle's into ours, then compare outputs and every gradient.

    Our parameters that have no counterpart must be biases; they are 0.
    """
    for parameter in oracle.parameters():
        nn.init.normal_(parameter, std=0.3)
    weights = dict(oracle.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if name in copies:
                parameter.copy_(copies[name].stack(weights) + copies[name].plus)
            else:
                assert name.endswith(("bias", "beta")), f"{name} has no counterpart"
                parameter.zero_()
    used = {name for copy in copies.values() for name in copy.names}
    assert used == set(weights), "every weight of the oracle's has a counterpart"
    x = torch.randn(BATCH, TIME, WIDTH)
    g = torch.randn(BATCH, TIME, WIDTH)
    mine, yours = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = ours(mine), call(yours)
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    a.backward(g)
    b.backward(g)
    torch.testing.assert_close(mine.grad, yours.grad, rtol=tolerance, atol=tolerance)
    gradients = {name: weight.grad for name, weight in weights.items()}
    for name, parameter in ours.named_parameters():
        if name in copies:
            expected = copies[name].stack(gradients)  # type: ignore[arg-type]
            torch.testing.assert_close(parameter.grad, expected, rtol=tolerance, atol=tolerance)


def layer(**parts) -> Layer:
    return Layer(ModelConfig(**{"width": WIDTH, "heads": HEADS, "hidden": HIDDEN, "context": TIME, **parts}))


def causal() -> Tensor:
    """An additive mask (1, 1, T, T) that hides the future."""
    return torch.full((TIME, TIME), torch.finfo(torch.float64).min).triu(1)[None, None]


def unrotated() -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions that rotate nothing: (1, T, K)."""
    return torch.ones(1, TIME, K), torch.zeros(1, TIME, K)


def attention(prefix: str = "self_attn.") -> dict[str, Copy]:
    return {
        "mixer.branch.qkv.weight": theirs(*(f"{prefix}{name}_proj.weight" for name in "qkv")),
        "mixer.branch.out.weight": theirs(f"{prefix}o_proj.weight"),
    }


def gated() -> dict[str, Copy]:
    pairs = {"gate": "gate_proj", "up": "up_proj", "out": "down_proj"}
    return {f"feedforward.branch.{a}.weight": theirs(f"mlp.{b}.weight") for a, b in pairs.items()}


def of_transformers(model: str) -> types.ModuleType:
    """transformers' module of a model, or a skip."""
    pytest.importorskip("transformers")
    return pytest.importorskip(f"transformers.models.{model}.modeling_{model}")


def config_of(kind: str, **more) -> object:
    transformers = pytest.importorskip("transformers")
    common = {
        "hidden_size": WIDTH,
        "intermediate_size": SWIGLU,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": 2,
        "head_dim": K,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attn_implementation": "eager",
    }
    return getattr(transformers, kind)(**{**common, **more})


def test_pre_rmsnorm_with_swiglu_is_llamas_layer():
    module = of_transformers("llama")
    oracle = module.LlamaDecoderLayer(config_of("LlamaConfig"), 0)
    copies = attention() | gated()
    copies |= {"mixer.norm.gamma": theirs("input_layernorm.weight")}
    copies |= {"feedforward.norm.gamma": theirs("post_attention_layernorm.weight")}

    def call(x: Tensor) -> Tensor:
        return oracle(x, attention_mask=causal(), position_embeddings=unrotated())

    assert_same(layer(norm="rmsnorm", feedforward="swiglu"), oracle, copies, call, LOOSE)


def test_olmo2_with_full_qk_norm_is_olmo2s_layer():
    module = of_transformers("olmo2")
    oracle = module.Olmo2DecoderLayer(config_of("Olmo2Config"), 0)
    copies = attention() | gated()
    copies |= {f"mixer.branch.{name}_norm.gamma": theirs(f"self_attn.{name}_norm.weight") for name in "qk"}
    copies |= {"mixer.norm.gamma": theirs("post_attention_layernorm.weight")}
    copies |= {"feedforward.norm.gamma": theirs("post_feedforward_layernorm.weight")}

    def call(x: Tensor) -> Tensor:
        return oracle(x, attention_mask=causal(), position_embeddings=unrotated())

    ours = layer(topology="olmo2", norm="rmsnorm", feedforward="swiglu", qk_norm="full")
    assert_same(ours, oracle, copies, call, LOOSE)


@pytest.mark.parametrize(("version", "qk_norm"), [("2", "none"), ("3", "per_head")])
def test_sandwich_is_gemmas_layer(version, qk_norm):
    module = of_transformers(f"gemma{version}")
    config = config_of(
        "Gemma2Config" if version == "2" else "Gemma3TextConfig",
        query_pre_attn_scalar=K,
        attn_logit_softcapping=None,
        hidden_activation="silu",
        sliding_window=64,
    )
    oracle = getattr(module, f"Gemma{version}DecoderLayer")(config, 0)
    copies = attention() | gated()
    norms = {
        "mixer.norm": "input_layernorm",
        "mixer.output_norm": "post_attention_layernorm",
        "feedforward.norm": "pre_feedforward_layernorm",
        "feedforward.output_norm": "post_feedforward_layernorm",
    }
    if qk_norm == "per_head":
        norms |= {f"mixer.branch.{name}_norm": f"self_attn.{name}_norm" for name in "qk"}
    copies |= {f"{a}.gamma": theirs(f"{b}.weight", plus=1.0) for a, b in norms.items()}

    def call(x: Tensor) -> Tensor:
        found = oracle(x, attention_mask=causal(), position_embeddings=unrotated())
        return found[0] if isinstance(found, tuple) else found

    parts = {"topology": "sandwich", "norm": "rmsnorm", "feedforward": "swiglu", "qk_norm": qk_norm}
    assert_same(layer(**parts), oracle, copies, call, LOOSE)


def test_pre_layernorm_with_gelu_is_gpt2s_block():
    module = of_transformers("gpt2")
    config = config_of("GPT2Config", n_inner=HIDDEN, activation_function="gelu", resid_pdrop=0, attn_pdrop=0)
    oracle = module.GPT2Block(config, 0)
    copies = {}
    for a, b in [("mixer.branch.qkv", "attn.c_attn"), ("mixer.branch.out", "attn.c_proj")]:
        copies |= {f"{a}.weight": theirs(f"{b}.weight", transpose=True), f"{a}.bias": theirs(f"{b}.bias")}
    for a, b in [("feedforward.branch.up", "mlp.c_fc"), ("feedforward.branch.out", "mlp.c_proj")]:
        copies |= {f"{a}.weight": theirs(f"{b}.weight", transpose=True), f"{a}.bias": theirs(f"{b}.bias")}
    for a, b in [("mixer.norm", "ln_1"), ("feedforward.norm", "ln_2")]:
        copies |= {f"{a}.gamma": theirs(f"{b}.weight"), f"{a}.beta": theirs(f"{b}.bias")}

    def call(x: Tensor) -> Tensor:
        found = oracle(x, attention_mask=causal())
        return found[0] if isinstance(found, tuple) else found

    assert_same(layer(feedforward="gelu"), oracle, copies, call)


def test_post_layernorm_with_gelu_is_berts_layer():
    module = of_transformers("bert")
    config = config_of(
        "BertConfig",
        intermediate_size=HIDDEN,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    oracle = module.BertLayer(config)
    copies = {}
    for kind in ("weight", "bias"):
        names = [f"attention.self.{name}.{kind}" for name in ("query", "key", "value")]
        copies[f"mixer.branch.qkv.{kind}"] = theirs(*names)
        pairs = [
            ("mixer.branch.out", "attention.output.dense"),
            ("feedforward.branch.up", "intermediate.dense"),
            ("feedforward.branch.out", "output.dense"),
        ]
        copies |= {f"{a}.{kind}": theirs(f"{b}.{kind}") for a, b in pairs}
    for a, b in [("mixer.norm", "attention.output.LayerNorm"), ("feedforward.norm", "output.LayerNorm")]:
        copies |= {f"{a}.gamma": theirs(f"{b}.weight"), f"{a}.beta": theirs(f"{b}.bias")}

    def call(x: Tensor) -> Tensor:
        found = oracle(x, causal())
        return found[0] if isinstance(found, tuple) else found

    assert_same(layer(topology="post", feedforward="gelu"), oracle, copies, call)


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
