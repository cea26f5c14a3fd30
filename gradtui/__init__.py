"""gradtui: a terminal laboratory that shows how gradients flow through transformers, live."""

__version__ = "0.1.0"
