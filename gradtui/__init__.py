"""gradtui: a terminal laboratory that shows how gradients flow through transformers, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe
    from gradtui.runs.open_run import open_run

__version__ = "0.1.0"
__all__ = ["Probe", "__version__", "open_run"]

# `import gradtui` is instant; torch and NumPy are loaded by what needs them.
_LATE = {"Probe": "gradtui.probe.probe", "open_run": "gradtui.runs.open_run"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return __all__
