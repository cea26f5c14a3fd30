"""The command line: one file a command, what they share in `options`, put together in `main`.

Nothing here loads torch, textual or numpy before a command needs it, so that `gradtui --help` is instant.
"""
