"""The norms are the lesson's formulas: equal to torch's own, with the Jacobians that theory gives them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradtui.zoo.norms import Derf, DyT, LayerNorm, NoNorm, RMSNorm

EPS = 1e-5
WIDTH = 16


def torchs_own(ours: nn.Module) -> nn.Module:
    """torch.nn's norm with the same weights and ε."""
    theirs: nn.Module
    if isinstance(ours, LayerNorm):
        theirs = nn.LayerNorm(WIDTH, eps=EPS, dtype=ours.gamma.dtype)
        theirs.load_state_dict({"weight": ours.gamma.detach(), "bias": ours.beta.detach()})
    else:
        assert isinstance(ours, RMSNorm)
        theirs = nn.RMSNorm(WIDTH, eps=EPS, dtype=ours.gamma.dtype)
        theirs.load_state_dict({"weight": ours.gamma.detach()})
    return theirs


def random_norm(kind: type[nn.Module], dtype: torch.dtype) -> nn.Module:
    norm = kind(WIDTH, EPS).to(dtype)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def jacobian(norm: nn.Module, x_D: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(norm, x_D)  # type: ignore[no-any-return,no-untyped-call]


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_output_and_gradients_equal_torchs(kind, dtype, tolerance, scale):
    torch.manual_seed(0)
    ours = random_norm(kind, dtype)
    theirs = torchs_own(ours)
    x_BTD = (scale * torch.randn(3, 5, WIDTH, dtype=dtype) + scale).requires_grad_()
    g_BTD = torch.randn(3, 5, WIDTH, dtype=dtype)
    torch.testing.assert_close(ours(x_BTD), theirs(x_BTD), rtol=tolerance, atol=tolerance)
    mine = torch.autograd.grad(ours(x_BTD), [x_BTD, *ours.parameters()], g_BTD)
    reference = torch.autograd.grad(theirs(x_BTD), [x_BTD, *theirs.parameters()], g_BTD)
    for a, b in zip(mine, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


def test_only_layernorm_has_a_beta():
    assert [name for name, _ in LayerNorm(4, EPS).named_parameters()] == ["gamma", "beta"]
    assert [name for name, _ in RMSNorm(4, EPS).named_parameters()] == ["gamma"]
    assert not list(NoNorm(4, EPS).parameters())


def test_epsilon_stands_inside_the_root():
    x_D = torch.full((WIDTH,), 1e-3, dtype=torch.float64)
    expected = x_D / torch.sqrt(torch.tensor(1e-6 + EPS, dtype=torch.float64))
    torch.testing.assert_close(RMSNorm(WIDTH, EPS).double()(x_D), expected)


def test_zero_input_gives_zero_not_nan():
    for norm in (LayerNorm(WIDTH, EPS), RMSNorm(WIDTH, EPS)):
        x_D = torch.zeros(WIDTH, requires_grad=True)
        norm(x_D).sum().backward()
        assert torch.equal(norm(x_D), torch.zeros(WIDTH))
        assert x_D.grad is not None
        assert torch.isfinite(x_D.grad).all()


def test_rmsnorm_jacobian_removes_x_and_divides_the_rest_by_r():
    torch.manual_seed(1)
    x_D = torch.randn(WIDTH, dtype=torch.float64)
    r = x_D.square().mean().sqrt()
    J = jacobian(RMSNorm(WIDTH, 0.0).double(), x_D)
    torch.testing.assert_close(J, J.T, rtol=0, atol=1e-12)
    eigenvalues = torch.linalg.eigvalsh(J)
    assert abs(eigenvalues[0]) < 1e-12
    torch.testing.assert_close(eigenvalues[1:], (1 / r).expand(WIDTH - 1), rtol=1e-12, atol=1e-12)
    assert (J @ x_D).norm() < 1e-12


def test_rmsnorm_jacobian_with_epsilon_keeps_eps_over_s_cubed_along_x():
    torch.manual_seed(2)
    x_D = torch.randn(WIDTH, dtype=torch.float64)
    s = (x_D.square().mean() + EPS).sqrt()
    J = jacobian(RMSNorm(WIDTH, EPS).double(), x_D)
    torch.testing.assert_close(J @ x_D, EPS / s**3 * x_D, rtol=1e-6, atol=1e-12)
    across = torch.randn(WIDTH, dtype=torch.float64)
    across -= x_D * (across @ x_D) / (x_D @ x_D)
    torch.testing.assert_close(J @ across, across / s, rtol=1e-12, atol=1e-12)


def test_layernorm_jacobian_removes_two_directions_and_divides_the_rest_by_sigma():
    torch.manual_seed(3)
    x_D = torch.randn(WIDTH, dtype=torch.float64) + 2
    sigma = x_D.std(correction=0)
    J = jacobian(LayerNorm(WIDTH, 0.0).double(), x_D)
    eigenvalues = torch.linalg.eigvalsh((J + J.T) / 2)
    assert eigenvalues[:2].abs().max() < 1e-12
    torch.testing.assert_close(eigenvalues[2:], (1 / sigma).expand(WIDTH - 2), rtol=1e-12, atol=1e-12)
    assert (J @ torch.ones(WIDTH, dtype=torch.float64)).norm() < 1e-12
    assert (J @ x_D).norm() < 1e-12


def test_layernorm_is_rmsnorm_of_the_centred_vector():
    torch.manual_seed(4)
    x_BD = torch.randn(8, WIDTH, dtype=torch.float64) + 3
    centred = x_BD - x_BD.mean(-1, keepdim=True)
    torch.testing.assert_close(
        LayerNorm(WIDTH, EPS).double()(x_BD), RMSNorm(WIDTH, EPS).double()(centred), rtol=1e-12, atol=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 100), st.floats(-100, 100), st.integers(0, 2**31))
def test_what_each_norm_cannot_see(scale, shift, seed):
    """LN(cx + b1) = LN(x), RMSNorm(cx) = RMSNorm(x); hence ⟨x, dx⟩ = 0, and Σdx = 0 for LN."""
    generator = torch.Generator().manual_seed(seed)
    x_D = torch.randn(WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    g_D = torch.randn(WIDTH, dtype=torch.float64, generator=generator)
    layernorm, rmsnorm = LayerNorm(WIDTH, 0.0).double(), RMSNorm(WIDTH, 0.0).double()
    torch.testing.assert_close(layernorm(scale * x_D + shift), layernorm(x_D), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(rmsnorm(scale * x_D), rmsnorm(x_D), rtol=1e-10, atol=1e-10)
    for norm in (layernorm, rmsnorm):
        (dx_D,) = torch.autograd.grad(norm(x_D), x_D, g_D)
        assert abs(float(x_D.detach() @ dx_D)) < 1e-11
    (dx_D,) = torch.autograd.grad(LayerNorm(WIDTH, EPS).double()(x_D), x_D, g_D)
    assert abs(float(dx_D.sum())) < 1e-11


@pytest.mark.parametrize(("kind", "curve"), [(DyT, torch.tanh), (Derf, torch.erf)])
def test_elementwise_norms_squash_each_number_by_itself(kind, curve):
    norm = random_norm(kind, torch.float64)
    x_BD = torch.randn(5, WIDTH, dtype=torch.float64)
    shift = norm.shift if kind is Derf else 0
    expected = norm.gamma * curve(norm.alpha * x_BD + shift) + norm.beta
    torch.testing.assert_close(norm(x_BD), expected, rtol=1e-12, atol=1e-12)
    J = jacobian(norm, x_BD[0])
    torch.testing.assert_close(J, torch.diag(J.diagonal()))


@pytest.mark.parametrize("kind", [DyT, Derf])
def test_elementwise_norms_fail_all_that_a_norm_cannot_see(kind):
    """Not blind to scale or shift, ⟨x, dx⟩ ≠ 0, Σdx ≠ 0; and gradients die where α|x| is large."""
    norm = kind(WIDTH, EPS).double()
    x_D = torch.randn(WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert (norm(2 * x_D) - norm(x_D)).abs().max() > 0.1
    assert (norm(x_D + 1) - norm(x_D)).abs().max() > 0.1
    (dx_D,) = torch.autograd.grad(norm(x_D), x_D, torch.ones(WIDTH, dtype=torch.float64))
    assert abs(float(x_D.detach() @ dx_D)) > 0.01
    assert abs(float(dx_D.sum())) > 0.01
    far_D = (100 * torch.sign(x_D)).detach().requires_grad_()
    norm(far_D).sum().backward()
    assert far_D.grad is not None
    assert far_D.grad.abs().max() < 1e-30
    # A norm of the same vector passes on about 1/RMS of every gradient, however large the vector.
    g_D = torch.randn(WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (dx_D,) = torch.autograd.grad(RMSNorm(WIDTH, EPS).double()(far_D), far_D, g_D)
    assert dx_D.norm() > 1e-3 * g_D.norm()


def test_elementwise_norms_start_with_half_a_slope():
    for kind in (DyT, Derf):
        norm = kind(WIDTH, EPS)
        assert norm.alpha.item() == 0.5
        assert norm.alpha.ndim == 0
        assert torch.equal(norm.gamma, torch.ones(WIDTH))
        assert not norm.beta.any()
    assert Derf(WIDTH, EPS).shift.item() == 0
