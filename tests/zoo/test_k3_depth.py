"""Attention over depth: fla's naive mix, the paper's equations, and Pre-LN where the queries are zero."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradtui.presets import AttnResConfig, ModelConfig, TrainingConfig
from gradtui.presets.parts import OPTIMIZERS, resolve
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer
from gradtui.zoo.topologies.depth_attention import AttnRes

LAYERS = 4


def model(topology: str = "attn_res", *, eps: float = 1e-300, queries: float = 0.0, **options) -> Transformer:
    shape = {"layers": LAYERS, "width": 16, "heads": 2, "context": 12, "norm": "layernorm"}
    config = ModelConfig(**shape, topology=topology, eps=eps, attn_res=AttnResConfig(**options))
    made = Transformer(config, seed=0).double()
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("query") and queries:
                parameter.normal_(0.0, queries, generator=generator)
    return made


def tokens(step: int = 0) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(step, 3, 12, 0)


def sublayers(made: Transformer) -> list[AttnRes]:
    return [sub for layer in made.layers for sub in (layer.mixer, layer.feedforward)]


def test_the_mix_is_flas_naive_one():
    """Loaded by path: importing the package needs triton."""
    pytest.importorskip("einops")
    package = importlib.util.find_spec("fla")
    if package is None or not package.submodule_search_locations:
        pytest.skip("fla-core is not installed")
    path = Path(package.submodule_search_locations[0], "ops", "attnres", "naive.py")
    spec = importlib.util.spec_from_file_location("fla_naive_attnres", path)
    assert spec is not None
    assert spec.loader is not None
    naive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(naive)
    sub = sublayers(model(queries=0.5, eps=1e-5))[3].float()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        sub.key_norm.gamma.normal_(1.0, 0.3, generator=generator)
    sources = tuple((3.0**i * torch.randn(2, 5, 16, generator=generator)).requires_grad_() for i in range(4))
    ours = sub.mix(sources)
    theirs, alpha = naive.naive_attnres(
        sub.query, list(sources), sub.key_norm.gamma, rms_eps=1e-5, return_weights=True
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sub.readings["depth"], alpha.mean(dim=(1, 2)), rtol=1e-5, atol=1e-6)
    wanted = [*sources, sub.query, sub.key_norm.gamma]
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), wanted),
        torch.autograd.grad(theirs.square().sum(), wanted),
        strict=True,
    ):
        assert float((a - b).norm()) <= 1e-5 * float(b.norm())


def by_the_book(made: Transformer, tokens_BT: Tensor, length: int, *, key_norm: bool) -> Tensor:
    """The paper's form: h_l = Σ α v over the embedding, finished blocks and the one under way."""

    def mix(query: AttnRes, sources: list[Tensor]) -> Tensor:
        scores = []
        for v in sources:
            key = v
            if key_norm:
                key = v / torch.sqrt(v.square().mean(-1, keepdim=True) + 1e-5) * query.key_norm.gamma
            scores.append((key * query.query).sum(-1).exp())
        total = sum(scores)
        return sum((score / total)[..., None] * v for score, v in zip(scores, sources, strict=True))

    embedding = made.embedding(tokens_BT)
    outputs: list[Tensor] = []  # of every branch
    h = embedding
    for index, sub in enumerate(sublayers(made)):
        outputs.append(sub.branch(sub.norm(h)))
        blocks = [sum(outputs[i : i + length]) for i in range(0, index + 1, length)]
        h = mix(sub, [embedding, *blocks])
    return made.head(made.final_norm(h))


@pytest.mark.parametrize(("block", "length"), [(0, 1), (1, 2), (3, 6), (10, 20)])
@pytest.mark.parametrize("key_norm", [True, False])
def test_full_and_block_are_the_papers_equations(block, length, key_norm):
    made = model(queries=0.5, eps=1e-5, block=block, key_norm=key_norm)
    tokens_BT = tokens()[:, :-1]
    got, wanted = made(tokens_BT), by_the_book(made, tokens_BT, length, key_norm=key_norm)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    parameters = [p for p in made.parameters() if p.requires_grad]
    grads = torch.autograd.grad(got.square().sum(), parameters)
    wanted_grads = torch.autograd.grad(wanted.square().sum(), parameters)
    for a, b in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block", [0, 1, 2, 7])
@pytest.mark.parametrize("key_norm", [True, False])
def test_with_zero_queries_it_is_pre_ln_in_loss_and_gradients_and_parts_from_it_after_a_step(block, key_norm):
    depth, plain = model(block=block, key_norm=key_norm), model("pre")
    streams: list[list[Tensor]] = [[], []]
    for made, kept in zip((depth, plain), streams, strict=True):
        for sub in sublayers(made):
            sub.register_forward_hook(
                lambda module, args, out, kept=kept: kept.append(out if isinstance(out, Tensor) else out[0])
            )
    losses = [made.loss(tokens()) for made in (depth, plain)]
    for stream in (*streams[0], *streams[1]):
        stream.retain_grad()
    for loss in losses:
        loss.backward()
    assert abs(losses[0].item() - losses[1].item()) <= 1e-12
    shared = dict(depth.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(shared[name].grad, parameter.grad, rtol=1e-9, atol=1e-12)
    for mine, yours in zip(*streams, strict=True):  # what a probe shows of the stream is the same, too
        torch.testing.assert_close(mine.grad, yours.grad, rtol=1e-9, atol=1e-12)
    for made in (depth, plain):
        resolve(OPTIMIZERS["adamw"])(made.parameters(), TrainingConfig(lr=1e-2)).step()
    assert abs(depth.loss(tokens(1)).item() - plain.loss(tokens(1)).item()) > 1e-4


def test_what_is_read_at_first_is_the_plain_sum_over_the_number_of_sources():
    made = model()
    states = []
    for sub in sublayers(made):
        sub.register_forward_hook(lambda module, args, out: states.append(out))
    made(tokens()[:, :-1])
    for index, state in enumerate(states):
        sources = torch.stack([*state.blocks, state.partial])
        assert len(sources) == index + 2
        torch.testing.assert_close(state.mixed, sources.sum(0) / (index + 2), rtol=1e-12, atol=1e-12)
    sources = 2 * LAYERS + 1
    assert sublayers(made)[-1].readings["depth"].tolist() == pytest.approx([1 / sources] * sources)


def test_only_without_the_key_norm_does_a_loud_source_draw_attention():
    """What the norm on the keys is for: weights that do not change with the length of what is scored."""
    generator = torch.Generator().manual_seed(0)
    soft, loud = (torch.randn(1, 1, 16, dtype=torch.float64, generator=generator) for _ in range(2))
    for key_norm in (True, False):
        sub = sublayers(model(queries=0.3, key_norm=key_norm))[0]
        weights = []
        for factor in (1.0, 100.0):
            sub.mix((soft, factor * loud))
            weights.append(sub.readings["depth"].clone())
        change = float((weights[1] - weights[0]).abs().max())
        assert change < 1e-12 if key_norm else change > 0.1


def test_every_query_learns_and_none_lies_outside_a_sublayer():
    made = model(block=2)
    made.loss(tokens()).backward()
    queries = {name: p for name, p in made.named_parameters() if name.endswith("query")}
    assert len(queries) == 2 * LAYERS
    assert all(float(p.grad.norm()) > 0 for p in queries.values())
    assert isinstance(made.final_norm, nn.Module)
