"""Presets: TOML files, checked.

`config` has what a preset may say, `parts` the names it may use, `rules` which combinations make sense, `library`
the reading of files.
"""

from gradtui.presets.config import (
    GROUPS,
    AttnResConfig,
    HyperConfig,
    KDAConfig,
    MLAConfig,
    ModelConfig,
    MoEConfig,
    Preset,
    TrainingConfig,
    flatten,
    unflatten,
)
from gradtui.presets.library import (
    Library,
    PresetError,
    load_library,
    load_preset,
    parse_preset,
    shipped_directory,
    user_directory,
)

__all__ = [
    "GROUPS",
    "AttnResConfig",
    "HyperConfig",
    "KDAConfig",
    "Library",
    "MLAConfig",
    "MoEConfig",
    "ModelConfig",
    "Preset",
    "PresetError",
    "TrainingConfig",
    "flatten",
    "load_library",
    "load_preset",
    "parse_preset",
    "shipped_directory",
    "unflatten",
    "user_directory",
]
