"""A layer with the same weights is torch.nn.TransformerEncoderLayer: outputs and all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradtui.presets import ModelConfig
from gradtui.zoo.model import Layer

BATCH, TIME, WIDTH, HEADS, HIDDEN = 3, 12, 32, 4, 80


def twins(topology: str, feedforward: str) -> tuple[Layer, nn.TransformerEncoderLayer, dict[str, str]]:
    """Our layer and torch's with the same random weights, and the map from our names to torch's."""
    config = ModelConfig(
        width=WIDTH, heads=HEADS, hidden=HIDDEN, topology=topology, feedforward=feedforward, norm="layernorm"
    )
    ours = Layer(config)
    theirs = nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        HIDDEN,
        dropout=0.0,
        activation=feedforward,
        layer_norm_eps=config.eps,
        batch_first=True,
        norm_first=topology == "pre",
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    names = {
        "mixer.branch.qkv.weight": "self_attn.in_proj_weight",
        "mixer.branch.qkv.bias": "self_attn.in_proj_bias",
        "mixer.branch.out.weight": "self_attn.out_proj.weight",
        "mixer.branch.out.bias": "self_attn.out_proj.bias",
        "mixer.norm.gamma": "norm1.weight",
        "mixer.norm.beta": "norm1.bias",
        "feedforward.branch.up.weight": "linear1.weight",
        "feedforward.branch.up.bias": "linear1.bias",
        "feedforward.branch.out.weight": "linear2.weight",
        "feedforward.branch.out.bias": "linear2.bias",
        "feedforward.norm.gamma": "norm2.weight",
        "feedforward.norm.beta": "norm2.bias",
    }
    weights = dict(theirs.named_parameters())
    assert sorted(names.values()) == sorted(weights)
    ours.load_state_dict({mine: weights[yours].detach() for mine, yours in names.items()})
    return ours, theirs, names


@pytest.mark.parametrize("topology", ["post", "pre"])
@pytest.mark.parametrize("feedforward", ["relu", "gelu"])
def test_layer_equals_torchs_encoder_layer(topology, feedforward):
    torch.manual_seed(0)
    ours, theirs, names = twins(topology, feedforward)
    x_BTD = torch.randn(BATCH, TIME, WIDTH)
    g_BTD = torch.randn(BATCH, TIME, WIDTH)
    mine_in, yours_in = x_BTD.clone().requires_grad_(), x_BTD.clone().requires_grad_()
    mask_TT = nn.Transformer.generate_square_subsequent_mask(TIME)
    mine = ours(mine_in)
    yours = theirs(yours_in, src_mask=mask_TT, is_causal=True)
    torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)
    mine.backward(g_BTD)
    yours.backward(g_BTD)
    weights = dict(theirs.named_parameters())
    pairs = [(mine_in.grad, yours_in.grad)]
    pairs += [(parameter.grad, weights[names[name]].grad) for name, parameter in ours.named_parameters()]
    for a, b in pairs:
        assert a is not None
        assert b is not None
        assert float((a - b).norm()) <= 1e-5 * max(1.0, float(b.norm()))
