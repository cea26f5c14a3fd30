"""Run files: one SQLite file per run, one writer, any number of readers."""

from gradtui.paths import SUFFIX as SUFFIX


class RunError(Exception):
    """A run file that cannot be written or read; the message says which, why, and what to do."""
