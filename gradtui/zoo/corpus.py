"""What the models read: bytes, and batches of them that depend on nothing but seed and step.

Legend: B batch, S = T + 1 bytes that hold T predictions, K symbols of the synthetic source.
Batches never touch a model's random generator: with one seed every preset reads the same bytes.
"""

from __future__ import annotations

import functools
import os
import sysconfig
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STDLIB_CAP = 8 << 20  # bytes; all the text that hundreds of steps can see, read in some 30 ms
FILE_CAP = 256 << 20  # bytes; a larger file is read up to here
CONTEXTS_NEEDED = 4  # a file must hold this many windows (presets.py refuses a shorter one, too)

# Not the library itself, or not text: `encodings` is 1.4 MB of machine-written tables of code pages.
_SKIPPED_DIRECTORIES = frozenset(
    {"__pycache__", "dist-packages", "encodings", "idlelib", "lib2to3", "site-packages", "test", "tests"}
)


class CorpusError(ValueError):
    """A corpus that cannot be read or is too small; the message is one sentence that says what to do."""


class Corpus(ABC):
    """A source of training windows. `entropy_rate` is in nats a byte where it is known, else None."""

    name: str
    entropy_rate: float | None

    @abstractmethod
    def batch(self, step: int, batch: int, context: int, seed: int) -> Tensor:
        """The windows of one step: (B, S = context + 1) byte values, int64 on the CPU.

        A pure function: the same arguments give the same bytes, in any order of calls and in any process.
        """


@dataclass(frozen=True, slots=True, eq=False)
class TextCorpus(Corpus):
    """Windows that start at uniformly random positions of one byte string."""

    name: str
    text: NDArray[np.uint8]
    entropy_rate: None = None

    def batch(self, step: int, batch: int, context: int, seed: int) -> Tensor:
        random = np.random.default_rng((seed, step))
        starts_B = random.integers(0, len(self.text) - context, size=batch)
        windows_BS = self.text[starts_B[:, None] + np.arange(context + 1)]
        return torch.from_numpy(windows_BS.astype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class MarkovCorpus(Corpus):
    """A stationary Markov chain over the letters a, b, c, …; every window is a fresh sample of it.

    Each byte depends on the one before it through `transition_KK` (row: from, column: to), and the first
    byte is drawn from the stationary distribution. So the best possible loss, at every position and not just
    on average, is the entropy rate H = −Σ_i π_i Σ_j P_ij ln P_ij (Cover & Thomas 2006, theorem 4.2.4).
    """

    name: str
    transition_KK: NDArray[np.float64]
    stationary_K: NDArray[np.float64]
    entropy_rate: float

    FIRST = ord("a")

    @classmethod
    def random(cls, seed: int, symbols: int = 16) -> MarkovCorpus:
        """A chain whose rows are drawn from a Dirichlet: a few likely successors for each letter."""
        random = np.random.default_rng(seed)
        # A little of the uniform distribution keeps every transition possible, hence π unique.
        transition_KK = 0.98 * random.dirichlet(np.full(symbols, 0.3), size=symbols) + 0.02 / symbols
        stationary_K = _stationary(transition_KK)
        entropy_rate = -float(stationary_K @ (transition_KK * np.log(transition_KK)).sum(axis=1))
        return cls("markov", transition_KK, stationary_K, entropy_rate)

    def batch(self, step: int, batch: int, context: int, seed: int) -> Tensor:
        uniform_SB = np.random.default_rng((seed, step)).random((context + 1, batch))
        cumulative_KK = self.transition_KK.cumsum(axis=1)[:, :-1]  # a draw beyond the last edge: last symbol
        states_SB = np.empty((context + 1, batch), dtype=np.int64)
        states_SB[0] = np.searchsorted(self.stationary_K.cumsum()[:-1], uniform_SB[0], side="right")
        for s in range(1, context + 1):
            states_SB[s] = (cumulative_KK[states_SB[s - 1]] <= uniform_SB[s, :, None]).sum(axis=1)
        return torch.from_numpy(self.FIRST + np.ascontiguousarray(states_SB.T))


def load_corpus(spec: str, *, context: int, seed: int) -> Corpus:
    """The corpus that a preset names: `stdlib`, `file:PATH` or `markov`; raises CorpusError.

    `context` is checked against the size of a file. `seed` picks the chain of `markov`; the text of the
    others does not depend on it.
    """
    if spec == "stdlib":
        return TextCorpus(spec, _stdlib(Path(sysconfig.get_path("stdlib"))))
    if spec == "markov":
        return MarkovCorpus.random(seed)
    kind, _, path = spec.partition(":")
    if kind == "file" and path:
        return TextCorpus(spec, _file(Path(path), context))
    raise CorpusError(f"there is no corpus {spec!r}; allowed: stdlib, markov, file:PATH")


@functools.cache
def _stdlib(root: Path) -> NDArray[np.uint8]:
    """The standard library's own source, files in order of their path, up to STDLIB_CAP bytes."""
    paths = []
    for directory, children, names in os.walk(root):
        children[:] = [child for child in children if child not in _SKIPPED_DIRECTORIES]
        paths += [Path(directory, name) for name in names if name.endswith(".py")]
    text = bytearray()
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        try:
            text += path.read_bytes()
        except OSError:
            continue  # one unreadable file, say a dangling link, is no reason to stop
        if len(text) >= STDLIB_CAP:
            break
    if len(text) < 1 << 16:
        raise CorpusError(
            f"corpus stdlib: {root} holds {len(text)} bytes of Python source, too little to learn from (this "
            'Python is probably frozen or zipped); use corpus = "file:PATH" or "markov" instead'
        )
    return _frozen(bytes(text[:STDLIB_CAP]))


def _file(path: Path, context: int) -> NDArray[np.uint8]:
    """The bytes of a file, up to FILE_CAP; it must hold CONTEXTS_NEEDED windows."""
    if not path.is_file():  # asked first, because opening a named pipe would wait for ever
        reason = "is not a regular file" if path.exists() else "does not exist"
        raise CorpusError(f"corpus file:{path}: the file {reason}")
    try:
        with path.open("rb") as file:
            content = file.read(FILE_CAP)
    except OSError as error:
        raise CorpusError(f"corpus file:{path}: the file cannot be read: {error.strerror}") from error
    needed = CONTEXTS_NEEDED * (context + 1)
    if len(content) < needed:
        raise CorpusError(
            f"corpus file:{path} has {len(content)} bytes; with a context of {context} at least {needed} "
            "are needed"
        )
    return _frozen(content)


def _frozen(content: bytes) -> NDArray[np.uint8]:
    """A read-only array over `content`: cached text is shared and must not change."""
    return np.frombuffer(content, dtype=np.uint8)


def _stationary(transition_KK: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution with π P = π and Σπ = 1."""
    symbols = len(transition_KK)
    equations = np.vstack([transition_KK.T - np.eye(symbols), np.ones(symbols)])
    target = np.append(np.zeros(symbols), 1.0)
    solution: NDArray[np.float64] = np.linalg.lstsq(equations, target, rcond=None)[0]
    return solution
