"""Callbacks that put a probe into a training framework; each module needs its own framework, this one none."""
