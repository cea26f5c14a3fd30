"""Every topology is drawn with its norms where they stand."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from gradtui.i18n import Words
from gradtui.presets import ModelConfig
from gradtui.presets.parts import NORMS, TOPOLOGIES
from gradtui.ui.panels.topology import SKETCHES, sketch

CASES = [
    (topology, norm) for topology, entry in TOPOLOGIES.items() for norm in NORMS if entry.allows("norm", norm)
]


def test_every_topology_has_a_sketch_of_one_width_whose_ramps_meet_the_trunk() -> None:
    assert SKETCHES.keys() == TOPOLOGIES.keys()
    for lines in SKETCHES.values():
        assert {cell_len(line) for line in lines} == {18}
        trunk, ramp = lines[:2]
        for begin, end in ((1, 7), (10, 16)):
            assert trunk[begin] in "╦α╗"
            assert trunk[end] in "⊕●╔"
            assert ramp[begin] == "╰"
            assert ramp[end] in "╯┤"


@pytest.mark.parametrize(("topology", "norm"), CASES)
def test_every_topology_is_drawn_with_its_norms_where_they_stand(topology: str, norm: str) -> None:
    entry = TOPOLOGIES[topology]
    drawn = sketch(ModelConfig(topology=topology, norm=norm), Words("en")).plain
    lines = drawn.splitlines()
    assert entry.formula in drawn
    assert ("▣" in lines[0] + lines[1]) == (norm != "none" or topology == "ngpt")
    if norm != "none":
        trunk, ramp = SKETCHES[topology][:2]
        assert ("▣" in trunk) == entry.norm_on_trunk
        assert "▣" in trunk + ramp
        # A final norm stands alone at the end of the trunk, or of the second stream.
        end = lines[2].endswith("▣╯") if len(SKETCHES[topology]) == 3 else lines[0].endswith("▣▶")
        assert end == (entry.final_norm)
        assert f"N: {NORMS[norm].title}" in drawn


@pytest.mark.parametrize("topology", ["none", "attn_res"])
def test_a_stack_without_a_sum_is_not_said_to_have_a_free_trunk(topology: str) -> None:
    words = Words("en")
    drawn = sketch(ModelConfig(topology=topology), words).plain
    assert words("topology.ramp") not in drawn
    assert words("topology.toll") not in drawn
