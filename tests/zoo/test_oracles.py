"""With the same weights our blocks are other people's blocks: outputs and all gradients, in float64.

What is not installed is skipped; the extra `test-oracles` has them all.
"""

from __future__ import annotations

import pytest
from torch import Tensor
from zoo.oracles import (
    HIDDEN,
    LOOSE,
    K,
    assert_same,
    attention,
    causal,
    config_of,
    gated,
    layer,
    of_transformers,
    theirs,
    unrotated,
)

pytestmark = pytest.mark.usefixtures("double_precision")


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
