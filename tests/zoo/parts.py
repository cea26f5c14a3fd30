"""Tiny models: for every part that a preset can pick one configuration in which it makes sense."""

from __future__ import annotations

import msgspec

from gradtui.presets import HyperConfig, MLAConfig, ModelConfig, MoEConfig, parse_preset
from gradtui.presets.parts import FEEDFORWARDS, INITS, MIXERS, NORMS, POSITIONS, QK_NORMS, TOPOLOGIES

SMALL = {"layers": 2, "width": 16, "heads": 2, "context": 12}
NGPT = {"topology": "ngpt", "mixer": "ngpt", "feedforward": "ngpt", "norm": "none"}


def legal(**parts) -> ModelConfig:
    """The configuration, with what else it takes to be one; refused like a preset if it still makes no sense."""
    if "ngpt" in (parts.get("topology"), parts.get("mixer"), parts.get("feedforward")):
        parts = {**parts, **NGPT}
    elif not TOPOLOGIES[parts.get("topology", "pre")].allows("norm", "layernorm"):
        parts = {"norm": "none", **parts}
    model = ModelConfig(**{**SMALL, **parts})
    parse_preset({"title": "tiny", "model": msgspec.to_builtins(model)}, id="tiny", source="tiny.toml")
    return model


VARIATIONS: dict[str, ModelConfig] = {
    **{f"norm {name}": legal(norm=name) for name in NORMS},
    **{f"topology {name}": legal(topology=name, layers=4) for name in TOPOLOGIES},
    **{f"mixer {name}": legal(mixer=name) for name in MIXERS},
    **{f"feedforward {name}": legal(feedforward=name) for name in FEEDFORWARDS},
    **{f"qk_norm {name}": legal(qk_norm=name) for name in QK_NORMS},
    **{f"position {name}": legal(position=name) for name in POSITIONS},
    **{f"init {name}": legal(init=name) for name in INITS},
    "post without norm": legal(topology="post", norm="none"),
    "hyper-connections of weights alone": legal(topology="mhc", hyper=HyperConfig(streams=2, dynamic=False)),
    "mixers that repeat": legal(mixer=("attention", "mla"), layers=3, mla=MLAConfig(q_latent=4)),
    "a dense layer before experts": legal(
        feedforward="latent_moe", moe=MoEConfig(experts=8, active=2, dense_layers=1)
    ),
}
