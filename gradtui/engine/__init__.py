"""Trains presets in processes of their own: a supervisor, one lane per preset, and a client for the screen."""
