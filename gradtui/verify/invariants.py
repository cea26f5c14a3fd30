"""Numbers that theory fixes, computed on fresh models by plain autograd, without the probe.

Legend: B batch, T time, D width, V vocabulary; L layers. A sublayer's f is the output of its `branch`.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from gradtui.presets import Preset
from gradtui.presets.parts import NORMS, resolve
from gradtui.verify import VerifyError
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

BATCH = 4
# Of a norm's Jacobian: what is smaller than this, against the largest, is removed. ε alone leaves about 1e-5.
REMOVED = 1e-3
SCALES = (10.0, 100.0)


def sum_of_branches(preset: Preset, seed: int) -> float:
    """‖x_L − (x_0 + Σf)‖ / ‖x_L‖, where x_L is what the final norm, or else the head, is given; float32."""
    ends = last_and_sum(Transformer(preset.model, seed), first_windows(preset, seed))
    if ends is None:
        raise VerifyError(f"{preset.id} has no single stream that its branches could add up to")
    last_BTD, total_BTD = ends
    return float((last_BTD - total_BTD).norm() / last_BTD.norm())


@torch.no_grad()
def last_and_sum(model: Transformer, tokens_BS: Tensor) -> tuple[Tensor, Tensor] | None:
    """What the final norm, or else the head, is given, and x_0 + Σf; None where there is no single stream."""
    branches: list[Tensor] = []
    ends: list[Any] = []
    handles = [
        sub.branch.register_forward_hook(lambda _module, _inputs, f_BTD: branches.append(f_BTD))
        for sub in sublayers_of(model)
    ]
    handles.append(model.embedding.register_forward_hook(lambda _module, _inputs, x_BTD: ends.append(x_BTD)))
    last = model.head if model.final_norm is None else model.final_norm
    handles.append(last.register_forward_hook(lambda _module, inputs, _output: ends.append(inputs[0])))
    model(tokens_BS[:, :-1])
    for handle in handles:
        handle.remove()
    first_BTD, last_BTD = ends
    if not isinstance(last_BTD, Tensor):
        return None
    return last_BTD, first_BTD + torch.stack(branches).sum(dim=0)


def trunk_share(preset: Preset, seed: int) -> float:
    """The least of all sublayers' shares; 1 where every trunk hands its gradient on as it is."""
    return min(trunk_shares(Transformer(preset.model, seed), first_windows(preset, seed)))


def trunk_share_through(preset: Preset, seed: int) -> float:
    """The product of all sublayers' shares: what the trunk alone would let through from x_L to x_0."""
    return math.prod(trunk_shares(Transformer(preset.model, seed), first_windows(preset, seed)))


def trunk_shares(model: Transformer, tokens_BS: Tensor) -> list[float]:
    """‖Jᵀg‖ / ‖g‖ of each sublayer: g = ∂L/∂(its output), J its Jacobian with f held constant; float64.

    Turns `model` into a float64 one.
    """
    model.double()
    passed: list[tuple[Any, Tensor, Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor):
            raise VerifyError("a sublayer has no single stream, so its trunk has no share")
        output.retain_grad()
        passed.append((module, inputs[0], output))

    handles = [sub.register_forward_hook(keep) for sub in sublayers_of(model)]
    model.loss(tokens_BS).backward()
    for handle in handles:
        handle.remove()
    shares = []
    for sub, x_BTD, output_BTD in passed:
        g_BTD = output_BTD.grad
        assert g_BTD is not None
        constant = sub.branch.register_forward_hook(lambda _module, _inputs, f_BTD: f_BTD.detach())
        leaf_BTD = x_BTD.detach().requires_grad_()
        (trunk_BTD,) = torch.autograd.grad(sub(leaf_BTD), leaf_BTD, g_BTD, allow_unused=True)
        constant.remove()
        shares.append(0.0 if trunk_BTD is None else float(trunk_BTD.norm() / g_BTD.norm()))
    return shares


def lost_directions(preset: Preset, seed: int) -> float:
    """How many of D directions the preset's norm removes: singular values of its Jacobian near zero, float64."""
    norm, x_D = _norm(preset), _vector(preset, seed)
    jacobian_DD: Tensor = torch.autograd.functional.jacobian(norm, x_D)
    values_D = torch.linalg.svdvals(jacobian_DD)
    return float((values_D < REMOVED * values_D.max()).sum())


def scale_invariance(preset: Preset, seed: int) -> float:
    """The largest |N(cx) − N(x)| over components and c; what ε leaves where a norm ignores scale, float64."""
    norm, x_D = _norm(preset), _vector(preset, seed)
    with torch.no_grad():
        return max(float((norm(c * x_D) - norm(x_D)).abs().max()) for c in SCALES)


def centred_rms_twin(preset: Preset, seed: int) -> float:
    """The largest difference in logits between a LayerNorm model and its RMSNorm twin, float64.

    The twin has RMSNorm everywhere, and all that is written to the stream (embeddings, positions and every
    branch's last matrix and bias) has its mean over the width removed (Jiang et al. 2023, arXiv 2305.14858).
    """
    config = preset.model
    if config.norm != "layernorm":
        raise VerifyError(f"{preset.id} has norm = {config.norm!r}; the twin is one of a layernorm model")
    model = Transformer(config, seed).double()
    twin = Transformer(msgspec.structs.replace(config, norm="rmsnorm"), seed).double()
    weights = {name: weight for name, weight in model.state_dict().items() if not name.endswith(".beta")}
    twin.load_state_dict(weights)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if name.startswith("embedding."):
                parameter.sub_(parameter.mean(dim=-1, keepdim=True))
            elif ".branch.out." in name:
                parameter.sub_(parameter.mean(dim=0, keepdim=True))
        tokens_BT = first_windows(preset, seed)[:, :-1]
        return float((model(tokens_BT) - twin(tokens_BT)).abs().max())


def sublayers_of(model: Transformer) -> list[Any]:
    return [sub for layer in model.layers for sub in (layer.mixer, layer.feedforward)]


def first_windows(preset: Preset, seed: int) -> Tensor:
    """The first windows that a run with this seed reads, (B, T + 1)."""
    corpus = load_corpus(preset.corpus, context=preset.model.context, seed=seed)
    return corpus.batch(0, BATCH, preset.model.context, seed)


def _norm(preset: Preset) -> nn.Module:
    make = resolve(NORMS[preset.model.norm])
    norm: nn.Module = make(preset.model.width, preset.model.eps)
    return norm.double()


def _vector(preset: Preset, seed: int) -> Tensor:
    """A stream vector with a mean of its own, (D,)."""
    random = torch.Generator().manual_seed(seed)
    return 0.5 + torch.randn(preset.model.width, dtype=torch.float64, generator=random)
