"""The model zoo: transformers whose parts a preset picks by name.

Importing this package loads no torch; `registry` names the parts, the other modules are them.
"""
