"""The commands. Nothing heavy is imported before a command needs it: `gradtui --help` is instant."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from gradtui import __version__, paths
from gradtui.commands import data, script, verify
from gradtui.errors import FAILURE, USAGE, Failure
from gradtui.presets import Library, Preset, PresetError, load_library
from gradtui.runs import RunError

DEVICES = ("auto", "cpu", "cuda", "mps")

F = TypeVar("F", bound=Callable[..., Any])


def presets_option(command: F) -> F:
    """`--presets DIR`, on every command."""
    return click.option(
        "--presets",
        "directories",
        multiple=True,
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Also read presets (*.toml) from DIR; may be given several times.",
    )(command)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="gradtui %(version)s")
@presets_option
@click.option("--language", type=click.Choice(["en", "zh"]), help="Default: from the locale.")
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True)
@click.pass_context
def cli(context: click.Context, directories: tuple[Path, ...], language: str | None, device: str) -> None:
    """Watch gradients flow through transformers, live.

    Without a command: the lab. Presets train in the background, each layer's gradient streams into the
    charts, 1-9 switch presets, t asks the lesson's questions, ? lists all keys.
    """
    context.obj = directories
    if context.invoked_subcommand is None:
        from gradtui.ui.launch import launch_lab

        sys.exit(launch_lab(directories, language=language, device=device))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Every preset in full, as one JSON array.")
@presets_option
@click.pass_context
def presets(context: click.Context, as_json: bool, directories: tuple[Path, ...]) -> None:
    """List the presets."""
    library = _library((*context.obj, *directories))
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(preset) for preset in library.presets.values()]))
    else:
        width = max((len(name) for name in library.presets), default=0)
        digits = iter("123456789")
        group = ""
        for preset in library.presets.values():
            if preset.group != group:
                group = preset.group
                click.echo(f"{group}:")
            key = next(digits, " ") if group == "lesson" else " "
            about = f" — {preset.about}" if preset.about else ""
            click.echo(f"{key}  {preset.id:{width}}  {preset.title}{about}")
    if library.errors:
        sys.exit(FAILURE)


@cli.command()
@click.argument("preset")
@click.option("--steps", type=click.IntRange(1, 10**9), metavar="N", help="Instead of the preset's own.")
@click.option("--seed", type=click.IntRange(0, 2**62), metavar="S", help="Instead of the preset's own.")
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The run file to write.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bound the file: the newest N steps in full, older thinned.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")
@presets_option
@click.pass_context
def run(
    context: click.Context,
    preset: str,
    steps: int | None,
    seed: int | None,
    device: str,
    out: Path | None,
    keep: int | None,
    as_json: bool,
    directories: tuple[Path, ...],
) -> None:
    """Train PRESET without a screen and record it in a run file."""
    chosen = _library((*context.obj, *directories), quiet=True).get(preset)
    if steps is not None:
        training = msgspec.structs.replace(chosen.training, steps=steps)
        chosen = msgspec.structs.replace(chosen, training=training)
    seed = chosen.training.seed if seed is None else seed
    summary = _train(chosen, seed, device, out, keep, as_json)
    if as_json:
        click.echo(json.dumps(summary))


def _train(
    preset: Preset, seed: int, device: str, out: Path | None, keep: int | None, as_json: bool
) -> dict[str, Any]:
    # torch is loaded here, after all that can be refused without it.
    from gradtui.analysis.summary import summarise
    from gradtui.engine.device import DeviceError, choose_device
    from gradtui.engine.headless import Interrupted, train
    from gradtui.runs.reader import RunReader
    from gradtui.ui.text.report import report
    from gradtui.zoo.corpus import CorpusError

    try:
        choose_device(device)
    except DeviceError as error:
        raise Failure(str(error), USAGE) from error
    if out is not None and not out.absolute().parent.is_dir():
        raise Failure(f"--out {out}: the directory {out.absolute().parent} is not there", USAGE)
    if out is None:
        data, reason = paths.usable_data_directory()
        if reason:
            click.echo(f"gradtui: {reason}; recording in {data}", err=True)
        out = paths.new_run_path(paths.run_directory(data), preset.id, seed)
    # hidden=None would draw a bar into a log file; only a terminal gets one.
    with click.progressbar(
        length=preset.training.steps,
        label=preset.id,
        file=sys.stderr,
        hidden=sys.stderr is None or not sys.stderr.isatty(),
    ) as bar:
        try:
            train(preset, seed=seed, device=device, run=out, keep=keep, on_frame=lambda _frame: bar.update(1))
        except Interrupted as stop:
            bar.render_finish()
            raise Failure(f"{stop}; what was trained is in {out}", 128 + stop.signal) from stop
        except CorpusError as error:
            raise Failure(str(error)) from error
    with contextlib.closing(RunReader(out)) as reader:
        if not as_json:
            click.echo(report(reader))
        return summarise(reader)


@cli.command()
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]...")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Default: from the locale.")
@presets_option
def watch(files: tuple[Path, ...], language: str | None, directories: tuple[Path, ...]) -> None:
    """The lab's charts on run files, live or finished; several FILEs are overlaid.

    Without FILE: the newest run, or the first to come; o picks others. A run file holds the preset that it was
    made from, so --presets changes nothing here.
    """
    from gradtui.ui.launch import launch_pick, launch_watch

    if not files:
        sys.exit(launch_pick(paths.run_directory(paths.data_directory()), language=language))
    for file in files:
        if not file.is_file():
            raise Failure(f"{file} is not there, or is not a file; name a run file (*.gradtui)", USAGE)
    sys.exit(launch_watch(files, language=language))


@cli.command()
@presets_option
@click.pass_context
def doctor(context: click.Context, directories: tuple[Path, ...]) -> None:
    """Versions, device, threads, terminal, directories: what to send with a question."""
    from gradtui.doctor import examine

    problems = 0
    for finding in examine(load_library((*context.obj, *directories))):
        problems += not finding.good
        click.echo(f"{'✓' if finding.good else '✗'} {finding.name:22} {finding.text}")
    sys.exit(FAILURE if problems else 0)


@cli.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="More is steadier.")
@click.option("--quick", is_flag=True, help="The smallest size: shows that it works, its figures say nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of lines.")
@presets_option
def bench(names: tuple[str, ...], repeat: int, quick: bool, as_json: bool, directories: tuple[Path, ...]) -> None:
    """What gradtui costs, as ratios to a baseline in the same run.

    NAME is one of probe, lane, redraw, start, keys, beside, sites, scale; all of them where none is named. soak
    watches memory for as many minutes as --repeat says; scale makes up runs of --repeat × 100,000 steps. What is
    trained is always the shipped preset post-ln.
    """
    from dataclasses import asdict

    from gradtui.bench import BENCHES, LONG, Size, load

    for name in names:
        if name not in BENCHES:
            raise Failure(f"there is no benchmark {name!r}; there are: {', '.join(BENCHES)}", USAGE)
    results = []
    for name in names or [name for name in BENCHES if name not in LONG]:
        for result in load(name)(Size(repeat, quick)):
            results.append(asdict(result))
            if not as_json:
                click.echo(result.line())
    if as_json:
        click.echo(json.dumps(results))


cli.add_command(data.runs)
cli.add_command(data.export)
cli.add_command(script.exec_script)
cli.add_command(verify.verify)


def _library(directories: tuple[Path, ...], quiet: bool = False) -> Library:
    library = load_library(directories)
    for error in library.errors:
        if not quiet:
            click.echo(f"gradtui: {error}", err=True)
    return library


def main() -> None:
    """The console script: every error is one sentence and an exit code; a traceback goes to a log file."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a "→" that the terminal cannot show is no reason to fail
    try:
        cli.main(standalone_mode=False, prog_name="gradtui")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "gradtui"
        sentence = " ".join(error.format_message().split())
        _end(f"{sentence} (see: {where} --help)", USAGE)
    except click.ClickException as error:
        _end(error.format_message(), error.exit_code)
    except Failure as error:
        _end(str(error), error.code)
    except PresetError as error:
        _end(str(error), USAGE)
    except RunError as error:
        _end(str(error), FAILURE)
    except BrokenPipeError:
        # Whoever read our output has stopped; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILURE)
    except Exception as error:
        _end(f"{type(error).__name__}: {error} (details: {log_traceback()})", FAILURE)


def log_traceback() -> str:
    """Append the current traceback to the log file; returns its path, or why there is none."""
    try:
        data, _ = paths.usable_data_directory()
        path = paths.log_directory(data) / "gradtui.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc() + "\n")
    except (OSError, RuntimeError) as error:
        return f"no log: {error}"
    return str(path)


def _end(sentence: str, code: int) -> None:
    click.echo(f"gradtui: {sentence}", err=True)
    sys.exit(code)
