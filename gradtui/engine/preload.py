"""Imported once by the forkserver: the code of a lane and its default corpus, which all lanes then share."""

import contextlib

import gradtui.engine.lane  # noqa: F401
from gradtui.zoo.corpus import CorpusError, load_corpus

with contextlib.suppress(CorpusError):  # a preset that needs it will say so
    load_corpus("stdlib", context=2, seed=0)
