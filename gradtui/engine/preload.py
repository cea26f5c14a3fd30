"""Imported once by the forkserver, so that every lane starts with it in memory.

The first optimizer imports `torch._dynamo` (about a second); the corpus is read once for all lanes.
"""

import contextlib

import torch._dynamo  # noqa: F401

import gradtui.engine.lane  # noqa: F401
from gradtui.zoo.corpus import CorpusError, load_corpus

with contextlib.suppress(CorpusError):  # a preset that needs it will say so
    load_corpus("stdlib", context=2, seed=0)
