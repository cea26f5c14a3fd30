"""The topology drawn small: trunk, ramps, and where the norms stand, as in the lesson's figure 15.1."""

from __future__ import annotations

from rich.text import Text

from gradtui.i18n import Words
from gradtui.presets import ModelConfig
from gradtui.presets.parts import NORMS, TOPOLOGIES

TOLL = "bold #e69f00"
TRUNK = "#56b4e9"
RAMP = "#8a94a6"

PLAIN = " ╰─ f ─╯ "
NORMED = " ╰▣ f ─╯ "
SUM = "═╦═════⊕═"
TOLLED = "═╦═════⊕▣"

# Two sublayers each: the trunk, the ramps below it; of two streams the second is the third line. The trunk is left
# where the ramp leaves it. ▣ is a norm, α and the like are factors, ≡ are several streams.
SKETCHES: dict[str, tuple[str, ...]] = {
    "post": (TOLLED * 2, PLAIN * 2),
    "pre": (SUM * 2, NORMED * 2),
    "sandwich": (SUM * 2, " ╰▣ f ▣╯ " * 2),
    "olmo2": (SUM * 2, " ╰─ f ▣╯ " * 2),
    "hybrid_norm": (SUM + "▣╦═════⊕═", " ╰─▣f ─╯ " + PLAIN),
    "deepnorm": ("═╦══α══⊕▣" * 2, PLAIN * 2),
    "keel": ("═╦══α══⊕▣" * 2, NORMED * 2),
    "residual_dual": (TOLLED * 2, " ╰─ f ─┤ " * 2, "═══════⊕═" * 2),
    "mix_ln": (TOLLED + SUM, PLAIN + NORMED),
    "lns": (SUM * 2, " ╰▣÷f ─╯ " * 2),
    "rezero": (SUM * 2, " ╰─ f α╯ " * 2),
    "hyper_connections": ("≡╦≡A≡≡≡⊕≡" * 2, NORMED * 2),
    "mhc": ("≡╦≡H≡≡≡⊕≡" * 2, NORMED * 2),
    "attn_res": ("═α═════●═" * 2, NORMED * 2),
    "ngpt": (TOLLED * 2, " ╰─ f▣α╯ " * 2),
    "none": ("═╗     ╔═" * 2, NORMED * 2),
}
OWN_NORM = "ngpt"  # has norms that are not the preset's
NO_TRUNK = ("none", "attn_res")  # whose trunk neither pays nor runs free


def sketch(model: ModelConfig, words: Words) -> Text:
    """The diagram of `model`, its formula, and the one sentence to remember."""
    topology, norm = TOPOLOGIES[model.topology], NORMS[model.norm]
    bare = model.norm == "none" and model.topology != OWN_NORM
    lines = SKETCHES[model.topology]
    if bare:
        lines = tuple(line.replace("▣", "═" if index != 1 else "─") for index, line in enumerate(lines))
    final = "▣" if topology.final_norm and not bare else "═"
    text = Text()
    ends = [("x ", f"{final}▶"), ("  ", "")]
    if len(lines) == 3:  # the second stream joins the first at the end
        ends = [("x ", "⊕▶"), ("  ", "│ "), ("x ", f"{final}╯")]
    for index, (line, (begin, end)) in enumerate(zip(lines, ends, strict=True)):
        _draw(text, f"{begin}{line}{end}".rstrip() + "\n", RAMP if index == 1 else TRUNK)
    text.append(f"{topology.formula}\n", "bold")
    if bare:
        text.append(words("topology.bare"), "dim")
        return text
    if model.topology != OWN_NORM:
        text.append(f"N: {norm.title}\n")
        text.append(f"{norm.formula}\n", "dim")
    if model.topology not in NO_TRUNK:
        text.append(words("topology.toll" if topology.norm_on_trunk else "topology.ramp"), TOLL)
    return text


def _draw(text: Text, line: str, style: str) -> None:
    for character in line:
        text.append(character, TOLL if character == "▣" else style)
