"""The lesson's claims, checked by experiment: claims in TOML, what they need, and what came out.

Only `worker`, `invariants` and `benchmarks` load torch, and they run in processes of their own.
"""


class VerifyError(Exception):
    """Something could not be checked; the message is one sentence that says what and why."""
