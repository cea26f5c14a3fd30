"""What a worker is asked to do and what it answers: JSON lines on its stdin and stdout."""

from __future__ import annotations

import msgspec

from gradtui.presets import Preset


class Train(msgspec.Struct, frozen=True, tag="train"):
    """Train `preset` for `steps` steps and record it in `out`; with `evaluate` also what only an end can tell."""

    preset: Preset
    seed: int
    steps: int
    evaluate: bool
    out: str


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Compute an invariant; its value is the answer."""

    name: str
    preset: Preset | None
    seed: int


class Bench(msgspec.Struct, frozen=True, tag="bench"):
    """Take a measurement that needs the machine for itself."""

    name: str
    mode: str
    passed: str
    seed: int


Job = Train | Check | Bench


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """So many steps of the job are done."""

    steps: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job is done. `value` is None for a training, which leaves a run file, and for what is not finite."""

    value: float | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job could not be done; `reason` is a sentence."""

    reason: str


Answer = Progress | Done | Failed


def encode(message: Job | Answer) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


def decode_job(line: bytes) -> Job:
    """A line as a job; raises msgspec.MsgspecError."""
    job: Job = msgspec.json.decode(line, type=Train | Check | Bench)
    return job


def decode_answer(line: bytes) -> Answer:
    """A line as an answer; raises msgspec.MsgspecError."""
    answer: Answer = msgspec.json.decode(line, type=Progress | Done | Failed)
    return answer
