"""LayerNorm against RMSNorm on this machine's CPU, one thread: bytes moved, and time, as RMSNorm / LayerNorm.

Modes: `torch` is torch's own operator as it is called (LayerNorm is one fused kernel on every device; RMSNorm on
a CPU is, up to torch 2.13 at least, a row of seven single operators); `formula` is the lesson's formula, one
operator at a time; `compiled` is that formula made into kernels by torch.compile.

Legend: N rows, D width.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm
from torch.utils._python_dispatch import TorchDispatchMode

from gradtui.verify import VerifyError
from gradtui.zoo.norms import LayerNorm, RMSNorm

# 16 MB a tensor: several of them do not fit into a cache, so what is measured is memory.
ROWS, WIDTH = 4096, 1024
EPS = 1e-5
PAIRS, WARM_UP = 25, 3

Norm = Callable[[Tensor], Tensor]


def norm_time(mode: str, passed: str, seed: int) -> float:
    """Time of RMSNorm / time of LayerNorm, each the least of many, taken in turn: others' work only adds."""
    rms, layer = (_timer(norm, passed, seed) for norm in norms(mode))
    for _ in range(WARM_UP):
        rms()
        layer()
    pairs = [(rms(), layer()) for _ in range(PAIRS)]
    return min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs)


def norm_bytes(mode: str, passed: str, seed: int) -> float:
    """Bytes read and written by RMSNorm / by LayerNorm: the sizes of all operands of every kernel."""
    if mode == "compiled":
        rms, layer = (compiled.bytes[passed] for compiled in _compiled())
        if not rms or not layer:
            raise VerifyError(f"torch {torch.__version__} does not say how many bytes compiled kernels move")
    else:
        rms, layer = (_eager_bytes(norm, passed, seed) for norm in norms(mode))
    return rms / layer


def norms(mode: str) -> tuple[Norm, Norm]:
    """RMSNorm and LayerNorm, in this order."""
    gamma_D, beta_D = torch.ones(WIDTH, requires_grad=True), torch.zeros(WIDTH, requires_grad=True)
    if mode == "torch":
        return (
            lambda x_ND: rms_norm(x_ND, (WIDTH,), gamma_D, EPS),
            lambda x_ND: layer_norm(x_ND, (WIDTH,), gamma_D, beta_D, EPS),
        )
    if mode == "formula":
        return RMSNorm(WIDTH, EPS), LayerNorm(WIDTH, EPS)
    rms, layer = _compiled()
    return rms.norm, layer.norm


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled norm, and the bytes that its kernels move in each pass as the compiler counts them."""

    norm: Norm
    bytes: dict[str, int]


def _compiled() -> tuple[_Compiled, _Compiled]:
    return _compile(RMSNorm), _compile(LayerNorm)


@functools.cache
def _compile(kind: type[RMSNorm] | type[LayerNorm]) -> _Compiled:
    try:
        from torch._inductor import config, metrics

        torch._logging.set_logs(inductor_metrics=True)  # type: ignore[attr-defined]  # bytes are only counted for this log
        with config.patch(force_disable_caches=True):  # and not where a kernel comes from a cache
            norm = torch.compile(kind(WIDTH, EPS))
            metrics.reset()
            y_ND = norm(torch.ones(ROWS, WIDTH, requires_grad=True))
            forward = metrics.num_bytes_accessed
            y_ND.sum().backward()
            counted = {"forward": forward, "backward": metrics.num_bytes_accessed - forward}
    except Exception as error:  # no C++ compiler, most often; or another torch that counts no bytes
        first = str(error).strip().split("\n", 1)[0][:160]
        raise VerifyError(f"torch.compile does not work here ({type(error).__name__}: {first})") from error
    return _Compiled(norm, counted)


def _input(seed: int) -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def _timer(norm: Norm, passed: str, seed: int) -> Callable[[], float]:
    """Runs one pass and says how many seconds it took. Forward keeps what backward needs, as in training."""
    x_ND = _input(seed)
    g_ND = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed + 1))

    def once() -> float:
        x_ND.grad = None
        began = time.perf_counter()
        y_ND = norm(x_ND)
        between = time.perf_counter()
        if passed == "forward":
            return between - began
        y_ND.backward(g_ND)
        return time.perf_counter() - between

    return once


class ByteCounter(TorchDispatchMode):
    """Adds up the sizes of what every kernel reads and writes; views and empty tensors move nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and "empty" not in str(func) and "detach" not in str(func):
            read = {t.data_ptr(): t for t in _tensors((args, kwargs or {}))}
            self.bytes += sum(t.untyped_storage().nbytes() for t in read.values())
            self.bytes += sum(t.numel() * t.element_size() for t in _tensors(result))
        return result


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, list | tuple):
        return [tensor for branch in tree for tensor in _tensors(branch)]
    return []


def _eager_bytes(norm: Norm, passed: str, seed: int) -> int:
    x_ND, g_ND = _input(seed), torch.ones(ROWS, WIDTH)
    forward, backward = ByteCounter(), ByteCounter()
    with forward:
        y_ND = norm(x_ND)
    with backward:
        torch.autograd.grad(y_ND, x_ND, g_ND)
    return forward.bytes if passed == "forward" else backward.bytes
