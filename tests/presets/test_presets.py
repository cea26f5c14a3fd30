"""Presets: every shipped one loads and is explained; a bad one is one sentence and hides no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from gradtui.i18n import LANGUAGES
from gradtui.presets import (
    GROUPS,
    Preset,
    PresetError,
    load_library,
    load_preset,
    parse_preset,
    shipped_directory,
)
from gradtui.presets import library as library_module

LESSON = ["post-ln", "pre-ln", "post-rms", "pre-rms", "post-ln-warmup", "post-ln-deep", "pre-rms-100"]
GOOD = 'title = "fine"\n'


@pytest.fixture(autouse=True)
def _no_presets_of_the_developers_own(monkeypatch, tmp_path_factory):
    empty = tmp_path_factory.mktemp("config")
    monkeypatch.setattr(library_module, "user_directory", lambda: empty)


def write(directory: Path, text: str, name: str = "mine") -> Path:
    path = directory / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(PresetError) as error:
        load_preset(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def test_the_lessons_presets_come_first_and_in_order():
    library = load_library()
    assert not library.errors
    assert list(library.presets)[: len(LESSON)] == LESSON
    assert [library.presets[name].order for name in LESSON] == list(range(1, 8))


@pytest.mark.parametrize("path", sorted(shipped_directory().glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_preset_loads_is_explained_and_round_trips(path):
    preset = load_preset(path)
    assert preset.id == path.stem
    for language in LANGUAGES:
        assert preset.name(language).strip()
        assert 20 <= len(preset.summary(language)) <= 400
    assert set(preset.title.given()) == set(preset.about.given()) == set(LANGUAGES)
    assert any("\u4e00" <= char <= "\u9fff" for char in preset.summary("zh"))
    table = msgspec.to_builtins(preset)
    del table["id"]
    assert parse_preset(table, id=preset.id, source="again") == preset
    assert msgspec.json.decode(msgspec.json.encode(preset), type=Preset) == preset


def test_the_lessons_presets_differ_only_where_they_say():
    """Curves compare like with like: same data, optimizer and rate; the 2 × 2 differs in norm and topology."""
    library = load_library().presets
    base = library["post-ln"]
    for name in ("pre-ln", "post-rms", "pre-rms"):
        other = library[name]
        assert other.training == base.training
        assert other.corpus == base.corpus
        same = msgspec.structs.replace(other.model, norm=base.model.norm, topology=base.model.topology)
        assert same == base.model
    warm = library["post-ln-warmup"]
    assert warm.model == base.model
    assert msgspec.structs.replace(warm.training, warmup=0) == base.training
    assert warm.training.warmup == 100
    deep = library["post-ln-deep"]
    assert deep.model.layers >= 18
    assert msgspec.structs.replace(deep.model, layers=base.model.layers) == base.model
    assert library["pre-rms-100"].model.layers == 100
    for name in LESSON:
        preset = library[name]
        assert (preset.training.batch * preset.model.context, preset.training.betas) == (512, (0.9, 0.98))
        assert preset.group == "lesson"


def test_presets_are_listed_by_group_and_then_in_order(tmp_path):
    write(tmp_path, GOOD + "order = 0", "mine")
    presets = list(load_library([tmp_path]).presets.values())
    groups = [preset.group for preset in presets]
    assert groups == sorted(groups, key=GROUPS.index)
    assert set(groups) == set(GROUPS)
    assert [preset.id for preset in presets if preset.group == "own"] == ["mine"]
    for group in GROUPS:
        orders = [preset.order for preset in presets if preset.group == group]
        assert orders == sorted(orders)


def test_the_alternatives_to_the_lessons_wiring_differ_from_it_in_one_thing():
    """Then what two curves differ in has one cause; nGPT and nothing else comes with a recipe of its own."""
    library = load_library().presets
    base = library["pre-ln"]
    one_thing = {
        **dict.fromkeys(("deepnorm", "residual", "keel", "mix-ln", "hybrid-norm", "sandwich", "lns"), "topology"),
        **dict.fromkeys(("hyper-connections", "attn-res", "no-residual"), "topology"),
        **dict.fromkeys(("dyt", "derf", "no-norm"), "norm"),
    }
    for name, key in one_thing.items():
        model = library[name].model
        assert getattr(model, key) != getattr(base.model, key)
        assert msgspec.structs.replace(model, **{key: getattr(base.model, key)}) == base.model, name
        assert library[name].training == base.training
    rest = {p.id for p in library.values() if p.group == "alternatives"} - one_thing.keys()
    assert rest == {"rezero", "ngpt"}
    for name in ("gpt-2", "llama", "olmo-2", "gemma-3", "mhc"):
        assert library[name].group == "relay"
        assert library[name].training == base.training


def test_a_list_of_mixers_repeats_and_experts_may_begin_later():
    model = parse_preset(
        tomllib.loads(
            GOOD + '[model]\nmixer = ["kda", "kda", "mla"]\nfeedforward = "latent_moe"\nmoe.dense_layers = 1'
        ),
        id="fine",
        source="fine.toml",
    ).model
    assert [model.mixer_of(layer) for layer in range(5)] == ["kda", "kda", "mla", "kda", "kda"]
    assert [model.feedforward_of(layer) for layer in range(3)] == ["situ_glu", "latent_moe", "latent_moe"]


def test_defaults_are_enough():
    preset = parse_preset(tomllib.loads(GOOD), id="fine", source="fine.toml")
    assert (preset.corpus, preset.model.layers, preset.training.clip) == ("stdlib", 12, 0.0)
    assert preset.name("zh") == "fine"


BAD = {
    "unknown key": (GOOD + "[model]\nlayer = 3", ["model.layer", "layers", "did you mean layers"]),
    "unknown table": (GOOD + "[optimizer]\nlr = 3", ["optimizer", "model, training"]),
    "wrong type": (GOOD + '[model]\nlayers = "many"', ["model.layers = 'many'", "whole number from 1 to 1000"]),
    "a float where a count belongs": (GOOD + "[model]\nlayers = 2.5", ["model.layers = 2.5", "whole number"]),
    "a table that is a number": (GOOD + "model = 3", ["model = 3", "a table"]),
    "below the range": (GOOD + "[model]\nlayers = 0", ["model.layers = 0", "from 1 to 1000"]),
    "lr of zero": (GOOD + "[training]\nlr = 0", ["training.lr = 0", "> 0"]),
    "lr not a number": (GOOD + "[training]\nlr = nan", ["training.lr = nan", "> 0"]),
    "lr infinite": (GOOD + "[training]\nlr = inf", ["training.lr = inf", "> 0"]),
    "a beta of one": (GOOD + "[training]\nbetas = [0.9, 1.0]", ["training.betas[1] = 1.0", "not including"]),
    "three betas": (GOOD + "[training]\nbetas = [0.9, 0.9, 0.9]", ["training.betas", "two numbers"]),
    "heads do not divide": (
        GOOD + "[model]\nwidth = 64\nheads = 5",
        ["model.heads = 5", "divide", "model.width = 64"],
    ),
    "warm-up longer than the run": (
        GOOD + "[training]\nsteps = 10\nwarmup = 11",
        ["training.warmup = 11", "training.steps = 10"],
    ),
    "unknown norm": (
        GOOD + '[model]\nnorm = "layernrom"',
        ["model.norm = 'layernrom'", "layernorm, rmsnorm, dyt, derf, none", "did you mean layernorm?"],
    ),
    "unknown topology": (
        GOOD + '[model]\ntopology = "sandwhich"',
        ["model.topology = 'sandwhich'", "post, pre", "did you mean sandwich?"],
    ),
    "unknown mixer": (GOOD + '[model]\nmixer = "atention"', ["model.mixer", "did you mean attention?"]),
    "unknown mixer in a list": (GOOD + '[model]\nmixer = ["kda", "mlp"]', ["model.mixer = 'mlp'", "mla"]),
    "a list of no mixers": (GOOD + "[model]\nmixer = []", ["model.mixer = []", "a list of at least one"]),
    "a mixer that is a number": (GOOD + "[model]\nmixer = 3", ["model.mixer = 3", "a name in quotes, or a list"]),
    "a number among mixers": (GOOD + '[model]\nmixer = ["mla", 3]', ["model.mixer[1] = 3", "in quotes"]),
    "unknown qk_norm": (GOOD + '[model]\nqk_norm = "head"', ["model.qk_norm = 'head'", "none, per_head, full"]),
    "unknown position": (GOOD + '[model]\nposition = "rope"', ["model.position = 'rope'", "learned, none"]),
    "unknown balancing": (
        GOOD + '[model]\nfeedforward = "latent_moe"\nmoe.balancing = "loss"',
        ["model.moe.balancing = 'loss'", "quantile, fixed"],
    ),
    "unknown key of experts": (GOOD + "[model.moe]\nexpert = 8", ["model.moe.expert", "did you mean experts?"]),
    "no experts": (GOOD + "[model.moe]\nexperts = 0", ["model.moe.experts = 0", "≥ 1"]),
    "unknown group": (GOOD.rstrip() + '\ngroup = "lessons"', ["group = 'lessons'", "did you mean lesson?"]),
    "unknown feedforward": (GOOD + '[model]\nfeedforward = "glu"', ["model.feedforward", "relu, gelu, swiglu"]),
    "unknown init": (GOOD + '[model]\ninit = "he"', ["model.init", "xavier, fan_in, gpt2, gpt2_scaled"]),
    "unknown optimizer": (GOOD + '[training]\noptimizer = "lion"', ["training.optimizer", "adamw, sgd"]),
    "unknown schedule": (GOOD + '[training]\nschedule = "cosin"', ["training.schedule", "did you mean cosine?"]),
    "unknown corpus": (GOOD + 'corpus = "web"', ["corpus = 'web'", "stdlib, markov, file:PATH"]),
    "corpus without a path": (GOOD + 'corpus = "file:"', ["corpus = 'file:"]),
    "corpus not there": (GOOD + 'corpus = "file:none.txt"', ["none.txt", "no such file"]),
    "context longer than the corpus": (
        GOOD + 'corpus = "file:short.txt"\n[model]\ncontext = 64',
        ["short.txt", "100 bytes", "model.context = 64", "260"],
    ),
    "no title": ("order = 3", ["title is missing"]),
    "empty title": ('title = " "', ["title = ' '", "one line of visible characters"]),
    "an id": (GOOD + 'id = "other"', ["id = 'other'", "file name"]),
    "not TOML": ("title = ", ["not valid TOML"]),
}

MODEL = GOOD + "[model]\n"
CLASHES = {
    "a sandwich without norms": (
        MODEL + 'topology = "sandwich"\nnorm = "none"',
        ["model.topology = 'sandwich'", "model.norm = 'none'", "choose a norm"],
    ),
    "rezero with a norm": (
        MODEL + 'topology = "rezero"',
        ["model.topology = 'rezero'", "no place for a norm", "model.norm = 'layernorm'", "allowed: none"],
    ),
    "hybrid norm without attention": (
        MODEL + 'topology = "hybrid_norm"\nmixer = ["attention", "kda"]',
        ["model.topology = 'hybrid_norm'", "q, k and v", "model.mixer = 'kda'"],
    ),
    "hybrid norm over all heads": (
        MODEL + 'topology = "hybrid_norm"\nqk_norm = "full"',
        ["model.topology = 'hybrid_norm'", "model.qk_norm = 'full'", "leave it out"],
    ),
    "qk_norm without attention": (
        MODEL + 'mixer = "mla"\nqk_norm = "per_head"',
        ["model.qk_norm = 'per_head'", "model.mixer = 'mla'", "norms of its own"],
    ),
    "deepnorm without attention": (
        MODEL + 'topology = "deepnorm"\nmixer = "kda"',
        ["W_V, W_O", "model.mixer = 'kda'"],
    ),
    "deepnorm with experts": (
        MODEL + 'topology = "deepnorm"\nfeedforward = "latent_moe"',
        ["a dense feed-forward", "model.feedforward = 'latent_moe'"],
    ),
    "deepnorm with another init": (
        MODEL + 'topology = "deepnorm"\ninit = "gpt2"',
        ["Xavier's", "model.init = 'gpt2'", "allowed: xavier"],
    ),
    "scaled twice": (
        MODEL + 'topology = "lns"\ninit = "gpt2_scaled"',
        ["model.topology = 'lns'", "model.init = 'gpt2_scaled'", "one of the two"],
    ),
    "half an nGPT": (
        MODEL + 'topology = "ngpt"\nnorm = "none"\nmixer = "ngpt"',
        ["model.feedforward = 'relu'", "nGPT", "allowed: ngpt"],
    ),
    "nGPT's attention elsewhere": (MODEL + 'mixer = "ngpt"', ["model.topology = 'pre'", "nGPT", "allowed: ngpt"]),
    "all experts active": (
        MODEL + 'feedforward = "latent_moe"\nmoe = {experts = 8, active = 8}',
        ["model.moe.active = 8", "model.moe.experts = 8", "left out"],
    ),
    "options that no part reads": (
        MODEL + "hyper.streams = 2",
        ["model.hyper is not read", 'topology = "hyper_connections" or topology = "mhc"'],
    ),
    "experts that are not asked for": (MODEL + "moe.experts = 8", ["model.moe", 'feedforward = "latent_moe"']),
}
BAD |= CLASHES


@pytest.mark.parametrize("case", BAD)
def test_a_bad_preset_is_one_sentence_with_file_key_value_and_what_is_allowed(case, tmp_path):
    text, words = BAD[case]
    (tmp_path / "short.txt").write_bytes(b"x" * 100)
    message = refusal(write(tmp_path, text))
    for word in words:
        assert word in message


def test_a_preset_that_is_not_utf8_or_cannot_be_read_says_so(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes('title = "é"'.encode("latin-1"))
    assert "not UTF-8" in refusal(path)
    assert "cannot be read" in refusal(tmp_path / "gone.toml")


def test_bad_presets_never_hide_good_ones(tmp_path):
    for index, (text, _) in enumerate(BAD.values()):
        write(tmp_path, text, f"bad{index}")
    write(tmp_path, GOOD, "good")
    library = load_library([tmp_path])
    assert "good" in library.presets
    assert [name for name in library.presets if name in LESSON] == LESSON
    # Two of the cases are refused only because of a file that is not beside them here.
    assert len(library.errors) == len(BAD)
    with pytest.raises(PresetError, match=r"bad0\.toml: model\.layer is not a key"):
        library.get("bad0")


def test_a_later_directory_replaces_a_preset_of_the_same_name(tmp_path):
    write(tmp_path, 'title = "my own Post-LN"', "post-ln")
    assert load_library([tmp_path]).get("post-ln").name("en") == "my own Post-LN"


def test_an_unknown_preset_is_answered_with_the_nearest_name():
    with pytest.raises(PresetError, match="did you mean post-ln"):
        load_library().get("postln")


def test_a_file_corpus_is_resolved_beside_its_preset(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"x" * 1000)
    preset = load_preset(write(tmp_path, GOOD + 'corpus = "file:text.txt"'))
    assert preset.corpus == f"file:{(tmp_path / 'text.txt').resolve()}"


def test_reading_presets_loads_no_torch():
    code = (
        "import sys; from gradtui.presets import load_library; assert load_library().presets; "
        "print(sorted(m for m in sys.modules if m in ('torch', 'textual', 'plotext', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('corpus = "file:a\\u0000b"', "there is no such file"),
        ('corpus = "file:~nosuchuser/x"', "there is no such file"),
        ('corpus = "file:"', r"allowed: stdlib, markov, file:PATH"),
        ('corpus = "web"', r"allowed: stdlib, markov, file:PATH"),
        ('title = "\\u001b[2J"', "one line of visible characters"),
        ("training.steps = 1000000000000", "from 1 to 10"),
        ("training.lr = inf", "a finite number > 0"),
        ("training.seed = 1000000000000000000000000", "a whole number"),
    ],
)
def test_strange_values_are_refused_one_by_one_and_hide_nothing(tmp_path: Path, line: str, sentence: str) -> None:
    title = "" if line.startswith("title") else 'title = "x"\n'
    (tmp_path / "strange.toml").write_text(title + line + "\n", encoding="utf-8")
    library = load_library([tmp_path])
    assert "post-ln" in library.presets
    [error] = library.errors
    assert re.search(sentence, str(error))
    assert "strange.toml" in str(error)


def test_files_that_are_no_toml_at_all_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("title = " + "[" * 5000 + "]" * 5000)
    (tmp_path / "digits.toml").write_text('title = "x"\ntraining.steps = ' + "9" * 5000)
    (tmp_path / "long.toml").write_text('title = "x"\ncorpus = "file:' + "a" * 400 + '"')
    (tmp_path / "folder.toml").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.toml")
    library = load_library([tmp_path])
    assert "post-ln" in library.presets
    assert len(library.errors) == len(list(tmp_path.glob("*.toml")))
