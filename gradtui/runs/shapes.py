"""What a reader returns: one step, some steps one by one, or a window of rows that may be many steps each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradtui.runs.schema import Flags, Floats, Frame


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One step, all metrics: `values` [metrics, sites] with NaN where absent; `nonfinite` marks trouble."""

    frame: Frame
    values: Floats
    nonfinite: Flags


@dataclass(frozen=True, slots=True)
class Block:
    """N recorded steps, in order.

    `steps` [N]; `loss` [N] in nats, NaN where there is none; `loss_given` [N] where there is one (one that is
    NaN is given); `lr` [N]; `values` [N, metrics, sites] as they are stored, ABSENT where there is no value.
    """

    steps: NDArray[np.int64]
    loss: NDArray[np.float64]
    loss_given: Flags
    lr: NDArray[np.float64]
    values: Floats


@dataclass(frozen=True, slots=True)
class Window:
    """One metric over some steps, each row a step or a bucket of steps; rows may differ in how many they hold.

    `steps` [rows] is each row's first step; `low`, `mean`, `high` [rows, sites] are over the finite values
    (NaN where there was none); `nonfinite` [rows, sites] says whether any value was NaN or infinite.
    A NaN that is not `nonfinite` is a value that does not exist (a site without parameters).
    """

    steps: NDArray[np.int64]
    low: Floats
    mean: Floats
    high: Floats
    nonfinite: Flags


@dataclass(frozen=True, slots=True)
class LossWindow:
    """Loss over some steps, in nats; arrays are [rows], as in `Window`; `lr` is each row's last."""

    steps: NDArray[np.int64]
    low: NDArray[np.float64]
    mean: NDArray[np.float64]
    high: NDArray[np.float64]
    lr: NDArray[np.float64]
    nonfinite: Flags
