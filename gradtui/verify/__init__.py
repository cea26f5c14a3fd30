"""The lesson's claims, checked by experiment: `gradtui verify`.

`claims` reads them from TOML, `plan` turns them into `jobs`, `run` does those in processes of their own, `store`
keeps what came out, `judge` holds it against the claims' `bounds`, `report` prints it; `check` is all of that in
one call. `live` marks the claims of a run that goes on.

Only `worker`, `invariants` and `benchmarks` load torch, and only those processes load them.
"""


class VerifyError(Exception):
    """Something could not be checked; the message is one sentence that says what and why."""
