"""Whole stacks to measure: tokens, models in double precision, and what comes back along their trunks."""

from __future__ import annotations

from torch import Tensor, nn

from gradtui.presets import ModelConfig
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer
from gradtui.zoo.topologies.base import Sublayer

TINY = 1e-300  # as good as no ε: then what a norm cannot see has no effect at all


def tokens(batch: int = 2) -> Tensor:
    return load_corpus("stdlib", context=12, seed=0).batch(0, batch, 12, 0)


def double(config: ModelConfig, seed: int = 0) -> Transformer:
    return Transformer(config, seed).double()


def rms(x: Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def subs(model: Transformer) -> list[tuple[str, Sublayer]]:
    return [(site.name, module) for site, module in model.sites() if isinstance(module, Sublayer)]


def stream(state: object) -> Tensor:
    """What a probe measures of a state."""
    return state if isinstance(state, Tensor) else state[0]  # type: ignore[index]


def shares(model: Transformer, tokens_BS: Tensor) -> dict[str, float]:
    """Trunk share per sublayer: ‖what came along the trunk‖ / ‖what the sublayer's output got‖."""
    trunks: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def listen(name: str, module: Sublayer) -> None:
        def trunk_listener(trunk: Tensor) -> None:
            trunk.retain_grad()
            trunks[name] = trunk

        def after(_module: nn.Module, _args: object, output: object) -> None:
            outputs[name] = stream(output)
            outputs[name].retain_grad()

        module.trunk_listener = trunk_listener
        module.register_forward_hook(after)

    for name, module in subs(model):
        listen(name, module)
    model.loss(tokens_BS).backward()
    return {name: float(trunk.grad.norm() / outputs[name].grad.norm()) for name, trunk in trunks.items()}  # type: ignore[union-attr]
