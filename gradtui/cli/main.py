"""The `gradtui` command: the group of all commands, the lab when none is named, and what an error looks like."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import click

from gradtui import __version__, paths
from gradtui.cli.bench import bench
from gradtui.cli.doctor import doctor
from gradtui.cli.exec import exec_script
from gradtui.cli.export import export
from gradtui.cli.help import help_command
from gradtui.cli.options import device_option, language_option, presets_option
from gradtui.cli.presets import presets
from gradtui.cli.run import run
from gradtui.cli.runs import runs
from gradtui.cli.verify import verify
from gradtui.cli.watch import watch
from gradtui.errors import FAILURE, USAGE, Failure
from gradtui.presets import PresetError
from gradtui.runs import RunError


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="gradtui %(version)s")
@presets_option()
@language_option
@device_option
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


for command in (run, watch, exec_script, runs, export, presets, verify, bench, doctor, help_command):
    cli.add_command(command)


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
        # The reader of the output has closed it; Python's flush at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILURE)
    except Exception as error:
        _end(f"{type(error).__name__}: {error} (details: {_log_traceback()})", FAILURE)


def _log_traceback() -> str:
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
