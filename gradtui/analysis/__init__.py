"""Pure NumPy: what the numbers of a run mean."""
