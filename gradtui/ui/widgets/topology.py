"""The topology drawn small: trunk, ramps, and where the norms stand, as in the lesson's figure 15.1."""

from __future__ import annotations

from rich.text import Text

from gradtui.presets import ModelConfig
from gradtui.ui.i18n import Words
from gradtui.zoo import registry

TOLL = "bold #e69f00"
TRUNK = "#56b4e9"
RAMP = "#8a94a6"

# One sublayer each: the trunk above, the ramp below; the trunk is left where the ramp leaves it.
SKETCHES: dict[str, tuple[str, str]] = {
    "post": ("═╦════⊕═▣", " ╰─ f ─╯ "),
    "pre": ("═╦═════⊕═", " ╰▣ f ─╯ "),
}
SUBLAYERS = 2


def sketch(model: ModelConfig, words: Words) -> Text:
    """The diagram of `model`, its formula, and the one sentence to remember."""
    topology, norm = registry.TOPOLOGIES[model.topology], registry.NORMS[model.norm]
    trunk, ramp = SKETCHES[model.topology]
    if model.norm == "none":
        trunk, ramp = trunk.replace("▣", "═"), ramp.replace("▣", "─")
    final = "▣" if topology.final_norm and model.norm != "none" else "═"
    text = Text()
    _draw(text, f"x {trunk * SUBLAYERS}{final}▶\n", TRUNK)
    _draw(text, f"  {ramp * SUBLAYERS}\n", RAMP)
    text.append(f"{topology.formula}\n", "bold")
    if model.norm == "none":
        text.append(words("topology.bare"), "dim")
        return text
    text.append(f"N: {norm.title}\n")
    text.append(f"{norm.formula}\n", "dim")
    text.append(words("topology.toll" if topology.norm_on_trunk else "topology.ramp"), TOLL)
    return text


def _draw(text: Text, line: str, style: str) -> None:
    for character in line:
        text.append(character, TOLL if character == "▣" else style)
