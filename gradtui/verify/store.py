"""What was measured before, in the data directory, under keys made of everything that decides it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from gradtui.presets import Preset
from gradtui.runs import SUFFIX, RunError
from gradtui.runs.reader import RunReader

# The files and directories of the package that a training run's numbers come from, beside the preset, the seed and
# torch.
TRAINING_SOURCES = (
    "zoo", "probe", "runs", "metrics.py", "engine/trainer.py", "analysis/alarms.py", "verify/worker.py",
    "verify/invariants.py",
)  # fmt: skip
INVARIANT_SOURCES = ("zoo", "verify/invariants.py")
BENCHMARK_SOURCES = ("zoo/norms.py", "verify/benchmarks.py")
KEPT_DAYS = 30  # a file that no claim has needed for so long is removed
# What a preset says that changes no number.
_WORDS = frozenset({"id", "title", "about", "group", "order"})


class Store:
    """A directory of run files and single values, found by their keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def run(self, key: str) -> Path:
        """Where the run `key` is, or would be."""
        return self.directory / f"{key}{SUFFIX}"

    def has_run(self, key: str, steps: int) -> bool:
        """Whether the run is there and complete: `steps` steps, or fewer where it diverged."""
        path = self.run(key)
        if not path.exists():
            return False
        try:
            with contextlib.closing(RunReader(path)) as run:
                complete = run.status == "diverged" or (run.status == "done" and run.recorded >= steps)
        except RunError:
            return False
        if complete:
            os.utime(path)
        return complete

    def value(self, key: str) -> float | None:
        """The value kept as `key`, or None."""
        path = self.directory / f"{key}.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=float)
        except (OSError, msgspec.MsgspecError):
            return None
        os.utime(path)
        return found

    def keep(self, key: str, value: float) -> None:
        """Keep a finite value; written whole or not at all. Raises OSError."""
        draft = self.directory / f".{key}.{os.getpid()}.new"
        draft.write_bytes(msgspec.json.encode(value))
        draft.replace(self.directory / f"{key}.json")

    def prune(self, days: float = KEPT_DAYS) -> None:
        """Remove files that no claim has needed for `days` days, and drafts that were left behind after one."""
        now = time.time()
        for path in self.directory.iterdir():
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > 86400 * (min(1, days) if path.name.startswith(".") else days):
                    path.unlink()


def run_key(preset: Preset, seed: int, evaluated_at: int | None) -> str:
    """The key of a training run. `evaluated_at` is after how many steps it is evaluated, None where it is not."""
    parts = [sources(TRAINING_SOURCES), experiment(preset), seed, torch_version(), platform.python_version()]
    at = "" if evaluated_at is None else f"-e{evaluated_at}"
    return f"{preset.id}-{_digest([*parts, evaluated_at, _corpus(preset)])}-s{seed}{at}"


def invariant_key(name: str, preset: Preset, seed: int) -> str:
    """The key of an invariant's value."""
    parts = [sources(INVARIANT_SOURCES), name, experiment(preset), torch_version()]
    return f"{name}-{_digest(parts)}-s{seed}"


def benchmark_key(name: str, mode: str, passed: str, seed: int) -> str:
    """The key of a benchmark's value, which is this machine's."""
    parts = [sources(BENCHMARK_SOURCES), name, mode, passed, torch_version(), machine(), os.cpu_count()]
    return f"{name}-{mode}-{passed}-{_digest(parts)}-s{seed}"


def experiment(preset: Preset) -> dict[str, Any]:
    """What a preset says about the experiment: all but its words and its place in the list."""
    table: dict[str, Any] = msgspec.to_builtins(preset)
    return {key: value for key, value in table.items() if key not in _WORDS}


@functools.cache
def sources(names: tuple[str, ...]) -> str:
    """A digest of these files and directories of the package."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in _files(root, names):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(root: Path, names: Iterable[str]) -> list[Path]:
    found = []
    for name in names:
        path = root / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


@functools.cache
def torch_version() -> str:
    """The version of torch, without loading it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


@functools.cache
def machine() -> str:
    """What the processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _corpus(preset: Preset) -> list[Any]:
    """Size and time of a preset's text file; [] for a corpus that comes with Python or the zoo."""
    kind, _, path = preset.corpus.partition(":")
    if kind != "file":
        return []
    status = Path(path).stat()
    return [status.st_size, status.st_mtime_ns]


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
