"""Does jobs in processes of their own, several at a time; one that dies costs the job that it was doing.

`concurrent.futures.ProcessPoolExecutor` gives up all jobs when one of its processes dies and does not say how it
died, so the processes are held here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

from gradtui.verify import VerifyError
from gradtui.verify.jobs import Answer, BenchmarkJob, Done, Failed, Job, Progress, TrainingJob
from gradtui.verify.store import Store

STOP_SECONDS = 2.0


def run_jobs(
    jobs: Mapping[str, Job], *, at_once: int, store: Store, log: Path, on_progress: Callable[[int], None]
) -> dict[str, str]:
    """Do all `jobs` and put values into `store`; returns for each key that failed the reason.

    Benchmarks come last, one by one, with no other job beside them. `on_progress` is called with how much more is
    done, in units of `Job.weight`; `log` takes what the processes print. When it returns or raises, no process is
    left. Raises VerifyError if none can be started, OSError if the store cannot be written.
    """
    together = {key: job for key, job in jobs.items() if not isinstance(job, BenchmarkJob)}
    alone = {key: job for key, job in jobs.items() if isinstance(job, BenchmarkJob)}
    failed: dict[str, str] = {}
    done = dict.fromkeys(jobs, 0)
    for some, count in ((together, at_once), (alone, 1)):
        with contextlib.closing(_answers(some, count, log)) as answers:
            for key, answer in answers:
                job, before = jobs[key], done[key]
                done[key] = max(before, _share(job, answer))
                on_progress(done[key] - before)
                reason = _take(key, job, answer, store)
                if reason:
                    failed[key] = reason
    return failed


def _share(job: Job, answer: Answer) -> int:
    """How much of the job's weight is done."""
    if not isinstance(answer, Progress):
        return job.weight
    return job.weight * answer.steps // job.steps if isinstance(job, TrainingJob) else 0


def _take(key: str, job: Job, answer: Answer, store: Store) -> str:
    """Store what a job measured; returns why there is nothing to store, else ""."""
    if isinstance(answer, Failed):
        return answer.reason
    if isinstance(answer, Done) and not isinstance(job, TrainingJob):
        if answer.value is None:
            return "what it measured is not a finite number"
        store.keep(key, answer.value)
    return ""


def _answers(jobs: Mapping[str, Job], count: int, log: Path) -> Generator[tuple[str, Answer]]:
    """Do `jobs`, at most `count` at a time; yields (key, answer) as they come. Closing it ends all processes."""
    waiting = deque(jobs.items())
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, count):
                worker = idle.pop() if idle else _Worker(log)
                busy[worker.connection] = worker
                worker.begin(*waiting.popleft())
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy[connection]
                answer = worker.answer()
                if not isinstance(answer, Progress):
                    del busy[connection]
                    if worker.ended:
                        worker.close()
                    else:
                        idle.append(worker)
                yield worker.key, answer
    finally:
        for worker in busy.values():
            worker.interrupt()
        for worker in (*busy.values(), *idle):
            worker.close()


class _Worker:
    """A process that does one job after another; raises VerifyError where it cannot be started."""

    def __init__(self, log: Path) -> None:
        self.key = ""
        self.ended = False
        self._log = log
        context = get_context("spawn")
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.open("ab").close()
            self.connection, theirs = context.Pipe()
            # A daemon: also an exit that skips `close` leaves no process behind.
            self._process = context.Process(target=_work, args=(theirs, log), daemon=True)
            with theirs, _ignoring_interrupts():
                self._process.start()
        except OSError as error:
            raise VerifyError(f"the workers cannot be started: {error}") from error

    def begin(self, key: str, job: Job) -> None:
        """Give it a job."""
        self.key = key
        with contextlib.suppress(OSError):  # it has died; `answer` says how
            self.connection.send(job)

    def answer(self) -> Answer:
        """Its next answer, waiting for it; where it has died, how."""
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            self.ended = True
            code = self._process.exitcode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Failed(f"the worker {how} (log: {self._log})")
        return answer

    def interrupt(self) -> None:
        """Ask it to stop what it does; it removes a half-made run file."""
        self._process.terminate()

    def close(self) -> None:
        """End it, at once if it does not end by itself within STOP_SECONDS."""
        self.connection.close()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ctrl+c in a terminal is for the caller: a process that starts in here never receives it."""
    try:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, which alone may say so
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _work(connection: Connection, log: Path) -> None:
    """A worker process: does jobs from `connection` until that is closed; what it prints goes to `log`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))  # after all `finally`s
    if hasattr(os, "setsid"):
        os.setsid()  # a terminal that closes ends the caller, and with it this process, in order
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else compiling starts a pool of processes
    with contextlib.suppress(ConnectionError):  # the caller is gone
        import_module("gradtui.verify.worker").serve(connection)  # by name: this module does not load torch
