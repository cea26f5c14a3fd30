"""Bytes are counted as the formulas say; no time is asserted."""

from __future__ import annotations

import pytest
import torch

from gradtui.verify import benchmarks

FULL = benchmarks.ROWS * benchmarks.WIDTH * 4
ROW = benchmarks.ROWS * 4


def counted(norm):
    counter, x_ND = benchmarks.ByteCounter(), torch.zeros(benchmarks.ROWS, benchmarks.WIDTH)
    with counter:
        norm(x_ND)
    return counter.bytes


def test_one_fused_kernel_reads_once_and_writes_once():
    vectors = 2 * benchmarks.WIDTH * 4
    layer = benchmarks.norms("torch")[1]
    assert counted(layer) == 2 * FULL + vectors + 2 * ROW


def test_an_operator_by_itself_reads_its_operands_and_writes_its_result():
    assert counted(lambda x_ND: x_ND * 2) == 2 * FULL
    assert counted(lambda x_ND: x_ND * x_ND) == 2 * FULL
    assert counted(lambda x_ND: x_ND.mean(dim=-1)) == FULL + ROW
    assert counted(lambda x_ND: x_ND.view(-1).detach()) == 0


@pytest.mark.parametrize("passed", ["forward", "backward"])
def test_written_out_rmsnorm_moves_less_than_layernorm(passed):
    assert benchmarks.norm_bytes("formula", passed, 0) < 0.95


def test_both_passes_are_timed(monkeypatch):
    monkeypatch.setattr(benchmarks, "PAIRS", 1)
    monkeypatch.setattr(benchmarks, "WARM_UP", 0)
    assert all(benchmarks.norm_time("formula", passed, 0) > 0 for passed in ("forward", "backward"))
