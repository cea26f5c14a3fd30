"""Corpora: real bytes or a known source, batches that depend on seed and step alone, errors in one sentence."""

from __future__ import annotations

import os
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gradtui.presets import load_library
from gradtui.zoo import corpus as corpus_module
from gradtui.zoo.corpus import CorpusError, MarkovCorpus, TextCorpus, load_corpus


def sentence(error: pytest.ExceptionInfo[CorpusError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("spec", ["stdlib", "markov", "file"])
def test_a_batch_is_a_pure_function_of_seed_and_step(spec, tmp_path):
    if spec == "file":
        path = tmp_path / "text.bin"
        path.write_bytes(bytes(range(256)) * 8)
        spec = f"file:{path}"
    first = load_corpus(spec, context=16, seed=3)
    second = load_corpus(spec, context=16, seed=3)
    torch.manual_seed(0)
    forward = [first.batch(step, 4, 16, seed=3) for step in range(5)]
    torch.manual_seed(1)
    backward = [second.batch(step, 4, 16, seed=3) for step in reversed(range(5))]
    for a, b in zip(forward, reversed(backward), strict=True):
        assert a.dtype == torch.int64
        assert a.shape == (4, 17)
        assert torch.equal(a, b)
    assert not torch.equal(forward[0], forward[1])
    assert not torch.equal(forward[0], first.batch(0, 4, 16, seed=4))


def test_every_shipped_preset_reads_the_same_bytes():
    batches = []
    for preset in load_library().presets.values():
        source = load_corpus(preset.corpus, context=preset.model.context, seed=5)
        batches.append(source.batch(7, preset.training.batch, preset.model.context, seed=5))
    assert len(batches) >= 7
    assert all(torch.equal(batches[0], other) for other in batches[1:])


def test_stdlib_is_python_source_read_once_and_fast():
    corpus_module._stdlib.cache_clear()
    began = time.perf_counter()
    source = load_corpus("stdlib", context=64, seed=0)
    first = time.perf_counter() - began
    assert first < 5, "a cold disk may be slow, but not that slow"
    assert isinstance(source, TextCorpus)
    assert 1 << 20 <= len(source.text) <= corpus_module.STDLIB_CAP
    assert source.entropy_rate is None
    again = load_corpus("stdlib", context=64, seed=1)
    assert isinstance(again, TextCorpus)
    assert again.text is source.text
    assert not source.text.flags.writeable
    text = source.text.tobytes()
    assert b"def " in text
    assert text.startswith((Path(sysconfig.get_path("stdlib")) / "__future__.py").read_bytes())


def test_stdlib_order_is_by_path_and_skips_tests_and_packages(tmp_path):
    for name in ("b.py", "a/z.py", "a/y.py", "test/no.py", "site-packages/no.py", "encodings/no.py", "c.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"# {name}\n".encode() * 5000)
    text = corpus_module._stdlib(tmp_path).tobytes()
    order = sorted({line for line in text.splitlines() if line}, key=text.index)
    assert order == [b"# a/y.py", b"# a/z.py", b"# b.py"]


def test_a_python_without_library_source_is_one_clear_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "python311.zip"))
    with pytest.raises(CorpusError) as error:
        load_corpus("stdlib", context=64, seed=0)
    assert "python311.zip" in sentence(error)
    assert "markov" in sentence(error)


def test_windows_lie_inside_the_text_and_reach_both_ends():
    text = np.arange(20, dtype=np.uint8)
    source = TextCorpus("x", text)
    windows = torch.cat([source.batch(step, 64, 15, seed=0) for step in range(4)])
    assert torch.equal(windows[:, 1:] - windows[:, :-1], torch.ones(256, 15, dtype=torch.int64))
    assert set(windows[:, 0].tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("file:{tmp}/none.txt", "does not exist"),
        ("file:{tmp}", "is not a regular file"),
        ("file:{tmp}/short.txt", "has 100 bytes; with a context of 64 at least 260 are needed"),
        ("file:{tmp}/nul\0.txt", "does not exist"),
        ("file:", "allowed: stdlib, markov, file:PATH"),
        ("wikipedia", "there is no corpus 'wikipedia'; allowed: stdlib, markov, file:PATH"),
    ],
)
def test_a_corpus_that_cannot_be_used_says_why(spec, words, tmp_path):
    (tmp_path / "short.txt").write_bytes(b"x" * 100)
    with pytest.raises(CorpusError) as error:
        load_corpus(spec.format(tmp=tmp_path), context=64, seed=0)
    assert words in sentence(error)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="is not a regular file"):
        load_corpus(f"file:{tmp_path / 'pipe'}", context=64, seed=0)


def test_any_binary_file_of_a_few_contexts_will_do(tmp_path):
    path = tmp_path / "exact.bin"
    path.write_bytes(bytes(range(256)) + b"last")
    source = load_corpus(f"file:{path}", context=64, seed=0)
    assert source.batch(0, 8, 64, seed=0).shape == (8, 65)


def log_likelihood(source: MarkovCorpus, tokens_BS: torch.Tensor) -> np.ndarray:
    """ln P of every byte after the first under the true chain: what an ideal model would predict."""
    states_BS = tokens_BS.numpy() - source.FIRST
    return np.log(source.transition_KK[states_BS[:, :-1], states_BS[:, 1:]])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_ideal_models_loss_on_markov_is_the_stated_entropy_rate(seed):
    source = load_corpus("markov", context=64, seed=seed)
    assert isinstance(source, MarkovCorpus)
    logs = np.concatenate([log_likelihood(source, source.batch(step, 64, 64, seed)) for step in range(60)])
    standard_error = logs.std() / np.sqrt(logs.size)
    assert standard_error < 0.003
    assert -logs.mean() == pytest.approx(source.entropy_rate, abs=5 * standard_error)
    assert 0.5 < source.entropy_rate < np.log(16)
    # Stationary from the first byte on: the rate holds at each position, not just on average.
    assert -logs[:, 0].mean() == pytest.approx(source.entropy_rate, abs=5 * logs[:, 0].std() / 60)


def test_markov_frequencies_are_the_stated_chain():
    source = MarkovCorpus.random(0)
    np.testing.assert_allclose(source.transition_KK.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(source.stationary_K @ source.transition_KK, source.stationary_K, atol=1e-12)
    tokens = torch.cat([source.batch(step, 64, 64, seed=9) for step in range(60)]).numpy() - source.FIRST
    counts = np.zeros_like(source.transition_KK)
    np.add.at(counts, (tokens[:, :-1], tokens[:, 1:]), 1)
    frequent = counts.sum(axis=1) > 5000
    rows = counts[frequent] / counts[frequent].sum(axis=1, keepdims=True)
    assert frequent.sum() >= 8
    np.testing.assert_allclose(rows, source.transition_KK[frequent], atol=0.03)
    np.testing.assert_allclose(counts.sum(axis=1) / counts.sum(), source.stationary_K, atol=0.01)


def test_a_uniform_chain_has_the_entropy_of_a_fair_die():
    uniform = np.full((8, 8), 1 / 8)
    np.testing.assert_allclose(corpus_module._stationary(uniform), 1 / 8)
