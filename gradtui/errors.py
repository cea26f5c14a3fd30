"""How a command ends that cannot do what it was asked."""

from __future__ import annotations

USAGE, FAILURE = 2, 1


class Failure(Exception):
    """A sentence for the user and the exit code that goes with it."""

    def __init__(self, sentence: str, code: int = FAILURE) -> None:
        super().__init__(sentence)
        self.code = code
