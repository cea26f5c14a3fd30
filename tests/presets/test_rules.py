"""Rules about combinations stand at the parts that they are about."""

from __future__ import annotations

import pytest

from gradtui.presets import ModelConfig, PresetError, parse_preset
from gradtui.presets.parts import MODEL_PARTS, TOPOLOGIES, Requirement, Topology, readers

REQUIREMENTS = [
    (key, name, requirement)
    for key, entries in MODEL_PARTS.items()
    for name, part in entries.items()
    for requirement in part.requires
]


def refusal(model: dict[str, object]) -> str:
    with pytest.raises(PresetError) as error:
        parse_preset({"title": "x", "model": model}, id="x", source="x.toml")
    return str(error.value)


def forbidden(requirement: Requirement) -> str:
    return next(name for name in MODEL_PARTS[requirement.key] if not requirement.allows(name))


@pytest.mark.parametrize(
    ("key", "name", "requirement"), REQUIREMENTS, ids=[f"{k} {n}: {r.key}" for k, n, r in REQUIREMENTS]
)
def test_a_part_is_refused_beside_what_it_does_not_allow(key: str, name: str, requirement: Requirement) -> None:
    value = "full" if requirement.key == "qk_norm" else forbidden(requirement)
    assert not MODEL_PARTS[key][name].allows(requirement.key, value)
    # What else the part asks for is given to it, so that this requirement is the first that is not met.
    others = {r.key: r.only[0] for r in MODEL_PARTS[key][name].requires if r.only}
    norm = {"norm": "none"} if others.get("topology") == "ngpt" else {}
    sentence = refusal({**norm, **others, key: name, requirement.key: value})
    assert sentence.startswith("x.toml: model.")
    assert f"model.{requirement.key} = {value!r}" in sentence
    assert "{" not in sentence


def test_every_requirement_is_about_a_setting_and_every_table_has_a_reader() -> None:
    settings = set(ModelConfig.__struct_fields__)
    assert {requirement.key for _, _, requirement in REQUIREMENTS} <= settings
    tables = {name for name in settings if hasattr(getattr(ModelConfig(), name), "__struct_fields__")}
    assert set(readers()) == tables


def test_a_new_topology_with_a_constraint_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = Requirement("init", otherwise="{part} scales weights, as {setting} does", never=("gpt2",))
    monkeypatch.setitem(TOPOLOGIES, "mine", Topology("somewhere:Mine", "mine", requires=(constraint,)))
    sentence = refusal({"topology": "mine", "init": "gpt2"})
    assert sentence == "x.toml: model.topology = 'mine' scales weights, as model.init = 'gpt2' does"
    assert parse_preset({"title": "x", "model": {"topology": "mine"}}, id="x", source="x.toml")
