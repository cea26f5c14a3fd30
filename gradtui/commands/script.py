"""`gradtui exec`: somebody's own training script, unmodified."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from gradtui import paths
from gradtui.errors import FAILURE, USAGE, Failure

_SUFFIX = ".gradtui"


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
@click.option("--language", type=click.Choice(["en", "zh"]), help="Default: from the locale.")
def exec_script(
    script: tuple[str, ...],
    module: bool,
    headless: bool,
    run: Path | None,
    name: str | None,
    every: int,
    keep: int | None,
    layers: str | None,
    metrics: str | None,
    language: str | None,
) -> None:
    """Run SCRIPT as python would, and draw how gradients flow through the model that it trains.

    Options of gradtui come before SCRIPT; everything after it is the script's own.
    """
    # Imported here: nothing of it is needed to list the commands.
    from gradtui.script.plan import Plan, command_line, default_name

    chosen = _metrics(metrics)
    if not module and not Path(script[0]).exists():
        raise Failure(f"{script[0]} is not there; name a Python script, or a module with -m", USAGE)
    name = name or default_name(script, module)
    first_of_several = os.environ.get("RANK", "0") == "0"
    run = _run_file(run, name, first_of_several)
    if not headless and "RANK" not in os.environ:
        from gradtui.script.process import Script
        from gradtui.ui.launch import launch_script

        process = Script(
            script,
            module=module,
            run=run,
            log=run.with_suffix(".log"),
            keep=keep,
            name=name,
            every=every,
            layers=layers,
            metrics=chosen,
        )
        sys.exit(launch_script(process, language=language))
    from gradtui.script.headless import become

    plan = Plan(
        run=str(run.absolute()),
        line=command_line(script, module),
        name=name,
        every=every,
        keep=keep,
        layers=layers,
        metrics=chosen,
        tell=True,
    )
    try:
        become(script, module, plan)
    except OSError as error:
        raise Failure(f"{script[0]} cannot be started: {error.strerror}", FAILURE) from error


def _metrics(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    from gradtui.metrics import PROBE_METRICS

    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    known = PROBE_METRICS
    for metric in chosen:
        if metric not in known:
            raise Failure(f"--metrics: there is no metric {metric!r}; there are: {', '.join(known)}", USAGE)
    if not chosen:
        raise Failure(f"--metrics names none; there are: {', '.join(known)}", USAGE)
    return chosen


def _run_file(run: Path | None, name: str, first_of_several: bool) -> Path:
    if run is None:
        data, reason = paths.usable_data_directory()
        if reason and first_of_several:
            click.echo(f"gradtui: {reason}; recording in {data}", err=True)
        stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:80] or "script"
        stamp = time.strftime("%Y%m%d-%H%M%S")
        directory = paths.run_directory(data)
        return directory / f"{stem}-{stamp}-{os.getpid()}{_SUFFIX}"
    if not run.absolute().parent.is_dir():
        raise Failure(f"--run {run}: the directory {run.absolute().parent} is not there", USAGE)
    if run.exists() and first_of_several:
        raise Failure(f"--run {run}: the file exists; name another one, or remove it first", USAGE)
    return run
