"""`python -m gradtui.engine [SLOTS]`: the supervisor, driven by JSON lines on stdin, answering on stdout."""

from __future__ import annotations

import os
import sys
import threading

from gradtui.engine import protocol
from gradtui.engine.supervisor import Supervisor


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def main() -> None:
    """Serve until stdin ends."""
    # The protocol keeps the real stdout; whatever else prints goes to stderr, which is a log file.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    lock = threading.Lock()

    def emit(event: protocol.Event) -> None:
        with lock:
            answers.write(protocol.encode(event))

    slots = int(sys.argv[1]) if len(sys.argv) > 1 else usable_cores()
    Supervisor(sys.stdin.buffer, emit, slots).run()


if __name__ == "__main__":
    main()
