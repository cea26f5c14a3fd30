"""`gradtui exec`: a training script of the user's own, unmodified."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from gradtui import paths
from gradtui.cli.options import gathered, language_option
from gradtui.cli.output import writable_data_directory
from gradtui.errors import FAILURE, USAGE, Failure
from gradtui.runs import SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """The options of `gradtui exec`, as given; `script` is the script or module and its arguments."""

    script: tuple[str, ...]
    module: bool
    headless: bool
    run: Path | None
    name: str | None
    every: int
    keep: int | None
    layers: str | None
    metrics: str | None
    language: str | None

    def chosen_metrics(self) -> tuple[str, ...] | None:
        """The metrics to measure, None for the default ones; raises Failure."""
        if self.metrics is None:
            return None
        from gradtui.metrics import PROBE_METRICS

        chosen = tuple(dict.fromkeys(part.strip() for part in self.metrics.split(",") if part.strip()))
        known = ", ".join(PROBE_METRICS)
        for metric in chosen:
            if metric not in PROBE_METRICS:
                raise Failure(f"--metrics: there is no metric {metric!r}; there are: {known}", USAGE)
        if not chosen:
            raise Failure(f"--metrics names none; there are: {known}", USAGE)
        return chosen

    def run_file(self, name: str) -> Path:
        """The run file to write; raises Failure where it cannot be that one."""
        first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun has started
        if self.run is None:
            data = writable_data_directory("recording", quiet=not first)
            stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:80] or "script"
            stamp = time.strftime("%Y%m%d-%H%M%S")
            return paths.run_directory(data) / f"{stem}-{stamp}-{os.getpid()}{SUFFIX}"
        directory = self.run.absolute().parent
        if not directory.is_dir():
            raise Failure(f"--run {self.run}: the directory {directory} is not there", USAGE)
        if self.run.exists() and first:
            raise Failure(f"--run {self.run}: the file exists; name another one, or remove it first", USAGE)
        return self.run


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option("--headless", is_flag=True, help="Only record, without a screen; so it is under torchrun.")
@click.option("--run", "run", type=click.Path(dir_okay=False, path_type=Path), help="The run file to write.")
@click.option("--name", metavar="NAME", help="What to call the run; default: the script's name.")
@click.option("--every", type=click.IntRange(min=1), default=1, metavar="K", help="Measure every K-th step only.")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Bound the file: older steps are thinned.")
@click.option("--layers", metavar="PATH", help="Where the layers are, such as transformer.h; default: found.")
@click.option("--metrics", metavar="A,B", help="Only these, separated by commas; default: all that are cheap.")
@language_option
@gathered(ExecOptions)
def exec_script(options: ExecOptions) -> None:
    """Run SCRIPT as python would, and draw how gradients flow through the model that it trains.

    Options of gradtui come before SCRIPT; everything after it is the script's own.
    """
    # Imported here: nothing of it is needed to list the commands.
    from gradtui.script.plan import Plan, command_line, default_name

    script, module = options.script, options.module
    metrics = options.chosen_metrics()
    if not module and not Path(script[0]).exists():
        raise Failure(f"{script[0]} is not there; name a Python script, or a module with -m", USAGE)
    name = options.name or default_name(script, module)
    run = options.run_file(name)
    if not options.headless and "RANK" not in os.environ:
        from gradtui.script.process import Script
        from gradtui.ui.launch import launch_script

        process = Script(
            script,
            module=module,
            run=run,
            log=run.with_suffix(".log"),
            keep=options.keep,
            name=name,
            every=options.every,
            layers=options.layers,
            metrics=metrics,
        )
        sys.exit(launch_script(process, language=options.language))
    from gradtui.script.headless import become

    plan = Plan(
        run=str(run.absolute()),
        line=command_line(script, module),
        name=name,
        every=options.every,
        keep=options.keep,
        layers=options.layers,
        metrics=metrics,
        tell=True,
    )
    try:
        become(script, module, plan)
    except OSError as error:
        raise Failure(f"{script[0]} cannot be started: {error.strerror}", FAILURE) from error
