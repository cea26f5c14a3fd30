"""Does jobs in processes of their own, so many at a time; a worker that dies takes its one job with it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from gradtui.verify import VerifyError
from gradtui.verify.jobs import Answer, Bench, Done, Failed, Job, Progress, Train, decode_answer, encode
from gradtui.verify.plan import weight
from gradtui.verify.store import Store

STOP_SECONDS = 2.0
COMMAND = [sys.executable, "-m", "gradtui.verify.worker"]


@dataclass(frozen=True, slots=True)
class _News:
    """What a worker says about the job `key`."""

    key: str
    answer: Answer


def run_jobs(
    jobs: Mapping[str, Job], *, at_once: int, store: Store, log: Path, on_progress: Callable[[int], None]
) -> dict[str, str]:
    """Do all `jobs` and put values into `store`; returns for each that failed the reason.

    `on_progress` is told how much more is done, in units of `plan.weight`. Benchmarks come last, one by one, with
    no other job beside them. `log` takes what workers print. Raises VerifyError if no process can be started.
    """
    together = {key: job for key, job in jobs.items() if not isinstance(job, Bench)}
    alone = {key: job for key, job in jobs.items() if isinstance(job, Bench)}
    failed: dict[str, str] = {}
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            for some, count in ((together, at_once), (alone, 1)):
                failed |= _Crew(some, max(1, min(count, len(some))), store, file, on_progress).run()
    except OSError as error:
        raise VerifyError(f"the workers cannot be started: {error}") from error
    return {key: f"{reason} (log: {log})" if "worker" in reason else reason for key, reason in failed.items()}


class _Crew:
    """Some workers, each with a thread here that waits for it."""

    def __init__(
        self, jobs: Mapping[str, Job], count: int, store: Store, log: BinaryIO, on_progress: Callable[[int], None]
    ) -> None:
        self._jobs, self._count, self._store, self._log, self._on_progress = jobs, count, store, log, on_progress
        self._waiting = deque(jobs.items())
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._stopped = False

    def run(self) -> dict[str, str]:
        threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(self._count if self._jobs else 0)
        ]
        for thread in threads:
            thread.start()
        try:
            failed = self._collect()
            for thread in threads:  # each closes its worker's stdin, with which the worker ends
                thread.join()
            self._wait(STOP_SECONDS)
            return failed
        finally:
            self._stop()

    def _collect(self) -> dict[str, str]:
        failed: dict[str, str] = {}
        left, told = set(self._jobs), dict.fromkeys(self._jobs, 0)
        while left:
            news = self._news.get()
            job = self._jobs[news.key]
            whole = weight(job)
            if isinstance(news.answer, Progress):
                done = whole * news.answer.steps // job.steps if isinstance(job, Train) else 0
            else:
                done = whole
                left.discard(news.key)
            self._on_progress(max(0, done - told[news.key]))
            told[news.key] = max(done, told[news.key])
            if isinstance(news.answer, Failed):
                failed[news.key] = news.answer.reason
            elif isinstance(news.answer, Done) and not isinstance(job, Train):
                if news.answer.value is None:
                    failed[news.key] = "what it measured is not a finite number"
                else:
                    self._store.keep(news.key, news.answer.value)
        return failed

    def _work(self) -> None:
        """One worker after another (a second one only if the first has died), and their jobs."""
        process: subprocess.Popen[bytes] | None = None
        while not self._stopped:
            try:
                key, job = self._waiting.popleft()
            except IndexError:
                break
            try:
                if process is None or process.poll() is not None:
                    process = self._start()
                self._do(process, key, job)
            except OSError as error:  # it cannot be started, or died before it had read the job
                self._news.put(_News(key, Failed(f"the worker is gone: {error}")))
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _do(self, process: subprocess.Popen[bytes], key: str, job: Job) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode(job))
        process.stdin.flush()
        for line in process.stdout:
            try:
                answer = decode_answer(line)
            except msgspec.MsgspecError:
                continue
            self._news.put(_News(key, answer))
            if not isinstance(answer, Progress):
                return
        code = process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._news.put(_News(key, Failed(f"the worker {how}")))

    def _start(self) -> subprocess.Popen[bytes]:
        # Compiling would otherwise start a pool of processes; a session of its own: ctrl+c is ours to handle.
        with self._lock:
            if self._stopped:
                raise OSError("stopped")
            process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
                start_new_session=True,
            )
            self._processes[process.pid] = process
        return process

    def _wait(self, seconds: float) -> None:
        """Until all workers have ended, or so long for each."""
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)

    def _stop(self) -> None:
        """End what still runs."""
        with self._lock:
            self._stopped = True
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        self._wait(STOP_SECONDS)
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
