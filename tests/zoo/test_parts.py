"""Every part that a preset can pick, in a tiny model: it trains, repeats exactly, and its preset round-trips."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from zoo.parts import VARIATIONS, legal

from gradtui.i18n import Localized
from gradtui.presets import ModelConfig, Preset, TrainingConfig, parse_preset
from gradtui.presets.parts import FEEDFORWARDS, INITS, MIXERS, NORMS, OPTIMIZERS, SCHEDULES, TOPOLOGIES, resolve
from gradtui.zoo.corpus import load_corpus
from gradtui.zoo.model import Transformer

LISTS = {
    "norm": NORMS,
    "topology": TOPOLOGIES,
    "mixer": MIXERS,
    "feedforward": FEEDFORWARDS,
    "init": INITS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}


def train(config: ModelConfig, steps: int = 10, *, seed: int = 0) -> list[float]:
    """The losses of a bare loop."""
    model = Transformer(config, seed)
    corpus = load_corpus("stdlib", context=config.context, seed=seed)
    optimizer = resolve(OPTIMIZERS["adamw"])(model.parameters(), TrainingConfig(lr=1e-2))
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model.loss(corpus.batch(step, 4, config.context, seed))
        loss.backward()
        optimizer.step()
        model.after_step()
        losses.append(loss.item())
    assert all(p.isfinite().all() for p in model.parameters())
    return losses


@pytest.mark.parametrize("kind", LISTS)
def test_every_entry_resolves_is_documented_and_has_a_title(kind):
    for name, part in LISTS[kind].items():
        found = resolve(part)
        assert callable(found), name
        assert found.__doc__, f"{part.target} has no docstring"
        assert part.title.isprintable()
        if kind not in ("optimizer", "schedule"):
            assert part.formula, f"{name} has no formula"


@pytest.mark.parametrize("name", VARIATIONS)
def test_every_part_trains_ten_finite_steps_and_repeats_exactly(name):
    config = VARIATIONS[name]
    losses = train(config)
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-3:]) < sum(losses[:3])
    assert losses == train(config), "one seed is one run, to the last bit"
    assert losses != train(config, seed=1)


@pytest.mark.parametrize("name", VARIATIONS)
def test_every_part_survives_the_way_through_a_preset(name):
    table = msgspec.to_builtins(Preset(title=Localized(en=name), model=VARIATIONS[name]))
    del table["id"]
    preset = parse_preset(table, id="mine", source="mine.toml")
    assert preset.model == VARIATIONS[name]
    assert msgspec.json.decode(msgspec.json.encode(preset), type=Preset) == preset
    assert msgspec.convert(msgspec.to_builtins(preset), Preset) == preset


@pytest.mark.parametrize("name", VARIATIONS)
def test_sites_partition_the_parameters_in_forward_order(name):
    config = VARIATIONS[name]
    model = Transformer(config, seed=0)
    sites = model.sites()
    names = [site.name for site, _ in sites]
    expected = ["embedding"]
    expected += [f"layers.{layer}.{part}" for layer in range(config.layers) for part in ("mixer", "feedforward")]
    has_final_norm = TOPOLOGIES[config.topology].final_norm and config.norm != "none"
    assert names == [*expected, *(["final_norm"] if has_final_norm else []), "head"]
    owned = [id(parameter) for _, module in sites for parameter in module.parameters()]
    assert len(owned) == len(set(owned))
    assert set(owned) == {id(parameter) for parameter in model.parameters()}
    for site, module in sites:
        assert module is model.get_submodule(site.name)
        assert list(module.parameters()), f"{site.name} has nothing to measure"

    order: list[str] = []
    for site, module in sites:
        module.register_forward_hook(lambda *_, name=site.name: order.append(name))
    model.loss(load_corpus("stdlib", context=config.context, seed=0).batch(0, 2, config.context, 0)).backward()
    assert order == names
    # What no gradient reaches are parts that cannot matter yet, such as queries over a single source.
    reached = [parameter.grad is not None for parameter in model.parameters()]
    assert sum(reached) > 0.9 * len(reached)


@pytest.mark.parametrize("name", VARIATIONS)
def test_no_position_sees_the_future(name):
    model = Transformer(VARIATIONS[name], seed=0).double().eval()
    tokens_BT = load_corpus("stdlib", context=12, seed=0).batch(0, 2, 12, 0)[:, :12]
    changed_BT = tokens_BT.clone()
    changed_BT[:, 6:] = (changed_BT[:, 6:] + 1) % 256
    with torch.no_grad():
        a, b = model(tokens_BT), model(changed_BT)
    torch.testing.assert_close(a[:, :6], b[:, :6], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(a[:, 6:], b[:, 6:])


def test_mixers_of_a_list_repeat_from_layer_to_layer():
    model = Transformer(legal(mixer=("mla", "mla", "attention"), layers=5), seed=0)
    kinds = [type(layer.mixer.branch).__name__ for layer in model.layers]
    assert kinds == ["MLA", "MLA", "Attention", "MLA", "MLA"]


def test_without_positions_only_order_is_told_by_the_mixer():
    model = Transformer(legal(position="none"), seed=0)
    assert model.embedding.position is None
    assert not any("position" in name for name, _ in model.named_parameters())
