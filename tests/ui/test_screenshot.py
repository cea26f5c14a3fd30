"""The README's picture is what the lab shows. GRADTUI_UPDATE=1 draws it anew."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import numpy as np

from gradtui.engine import protocol
from gradtui.metrics import SITE_METRICS
from gradtui.presets import flatten, load_library
from gradtui.presets.parts import TOPOLOGIES
from gradtui.runs.schema import Event, Frame, Site
from ui.conftest import Bench, until

PICTURE = Path(__file__).with_name("lab.svg")
# Sixty-one steps of seed 0, recorded by `gradtui run post-ln --steps 61` and the same for pre-ln.
RECORDED = Path(__file__).with_name("recorded.npz")


def sites_of(topology: str, layers: int) -> list[Site]:
    sites = [Site("embedding", None, "embedding", 0)]
    for layer in range(layers):
        sites.append(Site(f"layers.{layer}.mixer", layer, "mixer"))
        sites.append(Site(f"layers.{layer}.feedforward", layer, "feedforward", layer + 1))
    if TOPOLOGIES[topology].final_norm:
        sites.append(Site("final_norm", None, "norm"))
    return [*sites, Site("head", None, "head")]


def replay(lab: Bench, name: str) -> None:
    """Write the recorded steps as the lane would."""
    recorded = np.load(RECORDED)
    preset = lab.session.lanes[name].preset
    assert preset is not None
    lab.facts[name] = {"preset": flatten(preset)}
    lab.sites = sites_of(preset.model.topology, preset.model.layers)
    rows = [list(recorded["metrics"]).index(metric) for metric in SITE_METRICS]
    frames = [
        Frame(step, 1000.0 + step, 1 / 23, float(loss), 1e-3, values[rows])
        for step, (values, loss) in enumerate(zip(recorded[name], recorded[f"{name}_loss"], strict=True))
    ]
    vanished = (Event(7, "vanished", 0, 0.009),) if name == "post-ln" else ()
    lab.record(name, *frames, events=vanished)


def words_in(svg: str) -> list[str]:
    """Every piece of text in the picture, in order."""
    return [html.unescape(text).strip() for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)]


async def test_the_picture_in_the_readme_is_current(tmp_path: Path) -> None:
    lab = Bench(tmp_path, library=load_library())
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        for name in ("post-ln", "pre-ln"):
            replay(lab, name)
        await until(pilot, lambda: "vanished" in lab.text() and "✓" in lab.text())
        lab.screen.mode = "color"
        lab.screen.repaint_now()
        await pilot.pause(0.3)
        picture = lab.app.export_screenshot(title="gradtui")
    lab.close()
    if os.environ.get("GRADTUI_UPDATE"):
        PICTURE.write_text(picture, encoding="utf-8")
    assert words_in(picture) == words_in(PICTURE.read_text(encoding="utf-8"))
