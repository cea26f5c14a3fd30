"""Each invariant is what its definition says, computed another way, and tells right wiring from wrong."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch

from gradtui.i18n import Localized
from gradtui.presets import ModelConfig, Preset
from gradtui.verify import VerifyError, invariants
from gradtui.zoo.model import Transformer


def preset(**changes) -> Preset:
    config = ModelConfig(**({"layers": 3, "width": 16, "heads": 2, "context": 8} | changes))
    return Preset(title=Localized(en="x"), corpus="markov", model=config, id="tiny")


def test_only_pre_norms_trunk_is_a_sum():
    assert invariants.sum_of_branches(preset(topology="pre"), 0) < 1e-6
    assert invariants.sum_of_branches(preset(topology="post"), 0) > 0.1


def test_the_trunk_of_pre_hands_its_gradient_on_and_that_of_post_does_not():
    assert invariants.trunk_share(preset(topology="pre"), 0) == pytest.approx(1, abs=1e-12)
    assert invariants.trunk_share_through(preset(topology="pre"), 0) == pytest.approx(1, abs=1e-12)
    assert invariants.trunk_share(preset(topology="post"), 0) < 0.9


def test_the_share_in_post_is_that_of_the_norms_jacobian():
    """Of the last sublayer: g goes into the head alone, and J is LN's Jacobian at x + f(x)."""
    about = preset(topology="post", layers=1)
    model = Transformer(about.model, 0).double()
    tokens_BS = torch.randint(97, 113, (2, 9), generator=torch.Generator().manual_seed(0))
    kept = {}
    sub = model.layers[0].feedforward
    sub.norm.register_forward_hook(lambda _module, inputs, output: kept.update(inside=inputs[0], output=output))
    model.loss(tokens_BS)
    output_BTD = kept["output"]
    logits = model.head(output_BTD.detach().requires_grad_())
    leaf_BTD = output_BTD.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(model.head(leaf_BTD).flatten(0, 1), tokens_BS[:, 1:].flatten())
    (g_BTD,) = torch.autograd.grad(loss, leaf_BTD)
    z_BTD, sigma_BT1 = output_BTD.detach(), kept["inside"].detach().var(dim=-1, unbiased=False, keepdim=True)
    s_BT1 = (sigma_BT1 + about.model.eps).sqrt()
    through_BTD = (g_BTD - g_BTD.mean(-1, keepdim=True) - z_BTD * (g_BTD * z_BTD).mean(-1, keepdim=True)) / s_BT1
    expected = float(through_BTD.norm() / g_BTD.norm())
    assert logits.shape[-1] == 256
    assert invariants.trunk_shares(model, tokens_BS)[-1] == pytest.approx(expected, rel=1e-10)


def test_all_sublayers_have_a_share_and_the_product_is_theirs():
    about = preset(topology="post")
    shares = invariants.trunk_shares(Transformer(about.model, 1), invariants.first_windows(about, 1))
    assert len(shares) == 6
    assert invariants.trunk_share_through(about, 1) == pytest.approx(math.prod(shares))
    assert invariants.trunk_share(about, 1) == pytest.approx(min(shares))


def test_layernorm_loses_two_directions_rmsnorm_one_and_no_norm_none():
    lost = {norm: invariants.lost_directions(preset(norm=norm), 0) for norm in ("layernorm", "rmsnorm", "none")}
    assert lost == {"layernorm": 2, "rmsnorm": 1, "none": 0}


def test_a_norm_takes_scale_away_and_nothing_else_does():
    assert invariants.scale_invariance(preset(norm="rmsnorm"), 0) < 1e-4
    assert invariants.scale_invariance(preset(norm="layernorm"), 0) < 1e-4
    assert invariants.scale_invariance(preset(norm="none"), 0) > 1


def test_the_centred_rmsnorm_twin_is_the_same_function_in_pre_and_another_in_post():
    assert invariants.centred_rms_twin(preset(topology="pre"), 0) < 1e-12
    assert invariants.centred_rms_twin(preset(topology="post"), 0) > 1e-3
    with pytest.raises(VerifyError, match="norm = 'rmsnorm'"):
        invariants.centred_rms_twin(preset(norm="rmsnorm"), 0)


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    invariants.trunk_share(preset(), 0)
    invariants.lost_directions(msgspec.structs.replace(preset()), 0)
    assert torch.equal(state, torch.random.get_rng_state())
