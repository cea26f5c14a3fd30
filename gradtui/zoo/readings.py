"""Extra numbers that a module reports of its last forward pass: its `readings`, by name.

A reading is a detached tensor of one or a few numbers, replaced by every forward pass in training mode. Nothing
here waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

PERCENTILES = (0.05, 0.5, 0.95)


def rms(x_ND: Tensor) -> Tensor:
    """√mean(x²) of every row: (…, D) to (…)."""
    return x_ND.detach().square().mean(dim=-1).sqrt()


def spread(values: Tensor) -> Tensor:
    """The 5th, 50th and 95th percentile of all numbers in a tensor, by nearest rank: (3,)."""
    ordered = values.flatten().sort().values
    return torch.stack([ordered[round(share * (len(ordered) - 1))] for share in PERCENTILES])
