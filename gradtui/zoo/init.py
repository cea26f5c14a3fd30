"""How weights start. Each function fills every matrix of a model from one random generator.

Matrices are drawn in the order of `named_modules`, and norms draw nothing. So one seed gives the same branch
weights under LayerNorm and RMSNorm and under Post and Pre: what differs between two curves is the wiring.
Biases are 0; norms keep the γ = 1, β = 0 of their constructors.

The default (PyTorch's own uniform init) is never used. A std of 0.02 at width 64 makes branches carry almost
nothing, and all topologies then look alike at step 0; `xavier` and `fan_in` give branches of order 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from gradtui.presets import ModelConfig

# Token and position vectors add up, and 1/2 + 1/2 is a stream x_0 of mean square 1.
UNIT_EMBEDDING_STD = math.sqrt(0.5)
# Under `xavier`, the init of the lesson's presets, x_0 has RMS √8 instead. Every later position attends to
# position 0, so at step 0 half of ‖∂L/∂x_0‖² sits there, and with a unit x_0 Pre-LN starts with a flow ratio
# of 4 to 8 (RMS(x_L)/RMS(x_0) alone gives 3.5). From √8 both Post and Pre start near 1, and what one then sees
# is training. Measured, 12 layers × 64, seeds 0-4: Post-LN 0.6-1.2, Pre-LN 1.5-2.3.
XAVIER_EMBEDDING_STD = math.sqrt(2)
GPT2_STD = 0.02


def xavier(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 2/(n_in + n_out)) (Glorot & Bengio 2010, eq. 16, as a normal); x_0 has RMS √8, see above."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return math.sqrt(2 / (n_in + n_out))

    _fill(model, generator, linear_std=std, embedding_std=XAVIER_EMBEDDING_STD)


def fan_in(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 1/n_in), so that a matrix keeps the mean square of its input (LeCun 1998); x_0 has RMS 1."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return math.sqrt(1 / n_in)

    _fill(model, generator, linear_std=std, embedding_std=UNIT_EMBEDDING_STD)


def gpt2(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 0.02²) for matrices and embeddings alike; x_0 has RMS 0.028 (Radford et al. 2019)."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return GPT2_STD

    _fill(model, generator, linear_std=std, embedding_std=GPT2_STD)


def gpt2_scaled(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """As `gpt2`, with every branch's last matrix divided by √(2L): L layers have 2L residual additions.

    Radford et al. 2019, §2.3. The draws are those of `gpt2`, scaled.
    """
    scale = 1 / math.sqrt(2 * config.layers)

    def std(name: str, n_out: int, n_in: int) -> float:
        return GPT2_STD * (scale if name.endswith(".branch.out") else 1.0)

    _fill(model, generator, linear_std=std, embedding_std=GPT2_STD)


@torch.no_grad()
def _fill(
    model: nn.Module,
    generator: torch.Generator,
    *,
    linear_std: Callable[[str, int, int], float],
    embedding_std: float,
) -> None:
    """Draw every nn.Linear with std linear_std(name, n_out, n_in), every nn.Embedding with embedding_std."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            n_out, n_in = module.weight.shape
            module.weight.normal_(0.0, linear_std(name, n_out, n_in), generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, embedding_std, generator=generator)
