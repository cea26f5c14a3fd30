"""What every topology is: a sublayer, where it stands, and what a model asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from gradtui.presets import ModelConfig

NormMaker = Callable[[], nn.Module]
State = Any  # x_BTD, or a named tuple whose first field is the stream


@dataclass(frozen=True, slots=True)
class SublayerPosition:
    """Where a sublayer stands: `index` counts sublayers from 0 to 2L − 1, `kind` is "mixer" or "feedforward"."""

    index: int
    kind: str
    config: ModelConfig

    @property
    def layer(self) -> int:
        """The layer, counted from 0."""
        return self.index // 2

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.config.layers


class Sublayer(nn.Module):
    """One sublayer: `branch` is f, `norm` makes an N each time it is called.

    A topology that needs more than sublayers says so in its class: `enter` makes the state before layer 0, `leave`
    what the final norm is given, and the three modules below, built once a model, replace its own. `start` runs
    after the weights were drawn, `after_step`, where a module has it, after every optimizer step.
    """

    Embedding: ClassVar[type[nn.Module] | None] = None  # of (config)
    FinalNorm: ClassVar[type[nn.Module] | None] = None  # of (norm), from what `leave` returns to x_BTD
    Head: ClassVar[type[nn.Module] | None] = None  # of (width, vocabulary)

    # Called in each forward pass with the tensor that `trunk` returns, where it is not None.
    trunk_listener: Callable[[Tensor], None] | None = None

    def __init__(self, branch: nn.Module, norm: NormMaker, position: SublayerPosition) -> None:
        super().__init__()
        self.branch = branch
        self.norm = norm()

    @staticmethod
    def enter(x_BTD: Tensor, config: ModelConfig) -> State:
        """The state before layer 0."""
        return x_BTD

    @staticmethod
    def leave(state: State) -> Any:
        """What the final norm, or the head where there is none, is given after the last layer."""
        return state

    def start(self) -> None:
        """Change the weights as they were drawn, where the topology has an initialisation of its own."""

    def trunk(self, x: Tensor) -> Tensor:
        """x as it goes along the trunk: x itself, or a view of it where there is a `trunk_listener`.

        The gradient of that view is exactly the part of ∂L/∂x that came along the trunk; the rest came out of the
        branch. Take it after the branch was computed: gradients are then added up in the same order with and
        without, so that nothing else changes, to the last bit.
        """
        if self.trunk_listener is None:
            return x
        view = x.view_as(x)
        self.trunk_listener(view)
        return view
