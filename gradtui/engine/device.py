"""Which device trains."""

from __future__ import annotations

import torch

DEVICES = ("auto", "cpu", "cuda", "mps")


class DeviceError(ValueError):
    """A device that this machine does not have; the message says which there are."""


def available_devices() -> list[str]:
    """The devices that torch can use here, best first."""
    found = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes the best there is. Raises DeviceError."""
    found = available_devices()
    if name == "auto":
        return torch.device(found[0])
    if name not in found:
        raise DeviceError(
            f"device {name!r} is not available here (torch {torch.__version__} finds: {', '.join(found)})"
        )
    return torch.device(name)
