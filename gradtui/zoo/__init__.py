"""The model zoo: transformers whose parts a preset picks by name.

Importing this package loads no torch; `gradtui.presets.parts` names the parts that its modules hold.
"""
