"""nGPT: everything has length 1, before and after every step; one block against the paper's, written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from zoo.parts import legal

from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

CONFIG = legal(topology="ngpt", layers=3, hidden=48)
D, H, K = 16, 2, 8


def tokens(step: int = 0) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(step, 2, 12, 0)


def lengths(model: Transformer) -> dict[str, Tensor]:
    """The lengths of all vectors along the width, by matrix."""
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            found[name] = parameter.detach().norm(dim=0 if name.endswith("branch.out.weight") else 1)
    return found


def assert_all_one(model: Transformer) -> None:
    found = lengths(model)
    assert len(found) == 2 + 1 + 3 * 5  # embeddings, head, and the matrices of each layer
    for name, length in found.items():
        torch.testing.assert_close(length, torch.ones_like(length), rtol=0, atol=1e-5, msg=name)


def test_every_vector_has_length_one_at_the_start_and_after_every_step():
    model = Transformer(CONFIG, 0)
    assert_all_one(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    for step in range(3):
        optimizer.zero_grad()
        model.loss(tokens(step)).backward()
        optimizer.step()
        assert any((length - 1).abs().max() > 1e-3 for length in lengths(model).values())
        model.after_step()
        assert_all_one(model)


def test_the_stream_lies_on_the_sphere_everywhere():
    model = Transformer(CONFIG, 0)
    outputs: list[Tensor] = []
    for site, module in model.sites():
        if site.kind in ("embedding", "mixer", "feedforward"):
            module.register_forward_hook(lambda _m, _a, out: outputs.append(out))
    model(tokens()[:, :-1])
    assert len(outputs) == 7
    for x_BTD in outputs:
        torch.testing.assert_close(x_BTD.norm(dim=-1), torch.ones(2, 12), rtol=0, atol=1e-5)


def test_logits_are_cosines_at_the_start():
    model = Transformer(CONFIG, 0)
    assert model(tokens()[:, :-1]).abs().max() <= 1 + 1e-5
    assert not any(isinstance(m, nn.Linear) and m.bias is not None for m in model.modules())


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def test_a_model_is_the_papers_block_written_out():
    model = Transformer(CONFIG, 0).double()
    for name, parameter in model.named_parameters():
        if name.endswith("value"):  # scales away from where they start, some of them negative
            parameter.data *= torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double()
    tokens_BT = tokens()[:, :-1]
    h = unit(model.embedding.token.weight[tokens_BT] + model.embedding.position.weight[None])
    for layer in model.layers:
        mixer, feedforward = layer.mixer, layer.feedforward
        attention, mlp = mixer.branch, feedforward.branch
        s_qk = (attention.s_qk.value * math.sqrt(D)).view(H, 1, K)
        q, k, v = (part.view(2, 12, H, K).transpose(1, 2) for part in (h @ attention.qkv.weight.T).chunk(3, -1))
        logits = math.sqrt(K) * (s_qk * unit(q)) @ (s_qk * unit(k)).mT
        logits = logits.masked_fill(torch.ones(12, 12).triu(1).bool(), -math.inf)
        h_a = (logits.softmax(-1) @ v).transpose(1, 2).flatten(2) @ attention.out.weight.T
        alpha = (mixer.alpha.value * 0.05 * math.sqrt(D)).abs()
        h = unit(h + alpha * (unit(h_a) - h))
        u = (h @ mlp.up.weight.T) * mlp.s_up.value
        gate = (h @ mlp.gate.weight.T) * mlp.s_gate.value * math.sqrt(D)
        h_m = (u * silu(gate)) @ mlp.out.weight.T
        alpha = (feedforward.alpha.value * 0.05 * math.sqrt(D)).abs()
        h = unit(h + alpha * (unit(h_m) - h))
    expected = (h @ model.head.weight.T) * model.head.s_z.value * math.sqrt(D)
    torch.testing.assert_close(model(tokens_BT), expected, rtol=1e-10, atol=1e-12)


def test_a_step_on_the_sphere_starts_small():
    """α = 0.05 at the start: a sublayer turns the stream by a few degrees."""
    model = Transformer(CONFIG, 0)
    x_BTD = model.embedding(tokens()[:, :-1])
    y_BTD = model.layers[0].mixer(x_BTD)
    cosines = (x_BTD * y_BTD).sum(-1)
    assert cosines.min() > math.cos(math.radians(6))
    assert cosines.min().item() == pytest.approx(1, abs=0.01)
