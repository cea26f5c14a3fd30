"""Device→host transfers that never make the device wait."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradtui.runs.schema import Floats


class Transfer:
    """Brings a vector to the host. On CUDA it is read one step late, from pinned memory, elsewhere at once."""

    def __init__(self, device: torch.device) -> None:
        self._late = device.type == "cuda"
        self._pinned: list[Tensor] = []
        self._pending: list[tuple[Tensor, torch.cuda.Event, Any]] = []
        self._turn = 0

    def push(self, vector: Tensor, context: Any) -> list[tuple[Floats, Any]]:
        """Send `vector` off, which is then the transfer's; returns what has arrived, each with its own context."""
        if not self._late:
            return [(vector.cpu().numpy(), context)]
        arrived = self.drain()
        known = self._pinned[0] if self._pinned else None
        if known is None or known.numel() < vector.numel() or known.dtype != vector.dtype:
            self._pinned = [torch.empty(vector.numel(), dtype=vector.dtype, pin_memory=True) for _ in range(2)]
        self._turn ^= 1
        host = self._pinned[self._turn][: vector.numel()]
        host.copy_(vector, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._pending.append((host, event, context))
        return arrived

    def drain(self) -> list[tuple[Floats, Any]]:
        """Wait for what is under way; by the next step it has long arrived."""
        arrived = []
        for host, event, context in self._pending:
            event.synchronize()
            arrived.append((host.numpy().copy(), context))
        self._pending.clear()
        return arrived
