"""Run files: one SQLite file per run, one writer, any number of readers."""
