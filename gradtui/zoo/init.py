"""How weights start. Each function fills every matrix of a model from one random generator.

Matrices are drawn in the order of `named_modules`, and norms draw nothing. So one seed gives the same branch
weights under LayerNorm and RMSNorm and under Post and Pre: what differs between two curves is the topology.
Biases are 0; norms keep the γ = 1, β = 0 of their constructors.

The default (PyTorch's own uniform init) is never used. A std of 0.02 at width 64 makes branches carry almost
nothing, and all topologies then look alike at step 0; `xavier` and `fan_in` give branches of order 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from gradtui.presets import ModelConfig

# (token, position): the two vectors add up to x_0, so its mean square is the sum of the two variances.
# With 1/2 + 1/2 the stream starts at RMS 1, where the step-0 laws of pre- and post-norm stacks are exact.
UNIT_EMBEDDING = (math.sqrt(1 / 2), math.sqrt(1 / 2))
# Under `xavier`, the init of the lesson's presets, x_0 has RMS 2, two thirds of its energy from the position.
# Every position attends to position 0, so about half of ‖∂L/∂x_0‖² sits there at step 0, and from RMS 1 Pre-LN
# with 12 layers starts with a flow ratio of 3 to 5. From RMS 2 Post and Pre both start near 1 (measured, seeds
# 0-4: Post-LN 0.5-1.2, Pre-LN 1.5-2.2), so that what one sees afterwards is training.
XAVIER_EMBEDDING = (math.sqrt(4 / 3), math.sqrt(8 / 3))
GPT2_STD = 0.02
STREAM_WRITERS = (".branch.out", ".branch.shared.out")  # the last matrices of branches
GPT2_EMBEDDING = (GPT2_STD, GPT2_STD)


def xavier(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 2/(n_in + n_out)) (Glorot & Bengio 2010, eq. 16, as a normal); x_0 has RMS 2, see above."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return math.sqrt(2 / (n_in + n_out))

    _fill(model, generator, linear_std=std, embedding_stds=XAVIER_EMBEDDING)


def fan_in(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 1/n_in), so that a matrix keeps the mean square of its input (LeCun 1998); x_0 has RMS 1."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return math.sqrt(1 / n_in)

    _fill(model, generator, linear_std=std, embedding_stds=UNIT_EMBEDDING)


def gpt2(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """W ~ N(0, 0.02²) for matrices and embeddings alike; x_0 has RMS 0.028 (Radford et al. 2019)."""

    def std(name: str, n_out: int, n_in: int) -> float:
        return GPT2_STD

    _fill(model, generator, linear_std=std, embedding_stds=GPT2_EMBEDDING)


def gpt2_scaled(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """As `gpt2`, with every branch's last matrix divided by √(2L): L layers have 2L residual additions.

    Radford et al. 2019, §2.3. The draws are those of `gpt2`, scaled.
    """
    scale = 1 / math.sqrt(2 * config.layers)

    def std(name: str, n_out: int, n_in: int) -> float:
        return GPT2_STD * (scale if name.endswith(STREAM_WRITERS) else 1.0)

    _fill(model, generator, linear_std=std, embedding_stds=GPT2_EMBEDDING)


@torch.no_grad()
def _fill(
    model: nn.Module,
    generator: torch.Generator,
    *,
    linear_std: Callable[[str, int, int], float],
    embedding_stds: tuple[float, float],
) -> None:
    """Draw every nn.Linear with std linear_std(name, n_out, n_in), token and position likewise.

    A module with matrices of another kind has a method `fill(std, generator)`, with `std(n_out, n_in)`.
    """
    token_std, position_std = embedding_stds
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            n_out, n_in = module.weight.shape
            module.weight.normal_(0.0, linear_std(name, n_out, n_in), generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            std = position_std if name.endswith("position") else token_std
            module.weight.normal_(0.0, std, generator=generator)
        elif hasattr(module, "fill"):  # matrices that are no nn.Linear, such as those of all experts in one tensor
            module.fill(partial(linear_std, name), generator)
