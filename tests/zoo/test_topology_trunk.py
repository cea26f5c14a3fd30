"""What comes back along the trunk: measured without changing anything, and what it is in each topology."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from zoo.parts import legal
from zoo.stacks import double, shares, stream, subs, tokens

from gradtui.presets.parts import TOPOLOGIES
from gradtui.zoo.model import Transformer

WITHOUT_TRUNK = {"none", "attn_res"}


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
