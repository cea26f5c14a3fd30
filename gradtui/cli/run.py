"""`gradtui run`: train a preset without a screen."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from gradtui import paths
from gradtui.cli.options import device_option, gathered, presets_option
from gradtui.cli.output import progress_bar, writable_data_directory
from gradtui.errors import USAGE, Failure
from gradtui.presets import Preset, load_library


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `gradtui run`, as given; None where one was left out."""

    preset: str
    steps: int | None
    seed: int | None
    device: str
    out: Path | None
    keep: int | None
    as_json: bool
    directories: tuple[Path, ...]

    def chosen(self) -> Preset:
        """The preset, with as many steps as the options say; raises PresetError."""
        preset = load_library(self.directories).get(self.preset)
        if self.steps is None:
            return preset
        training = msgspec.structs.replace(preset.training, steps=self.steps)
        return msgspec.structs.replace(preset, training=training)

    def run_file(self, preset: Preset, seed: int) -> Path:
        """The run file to write; raises Failure where its directory is not there."""
        if self.out is None:
            data = writable_data_directory("recording")
            return paths.new_run_path(paths.run_directory(data), preset.id, seed)
        directory = self.out.absolute().parent
        if not directory.is_dir():
            raise Failure(f"--out {self.out}: the directory {directory} is not there", USAGE)
        return self.out


@click.command()
@click.argument("preset")
@click.option("--steps", type=click.IntRange(1, 10**9), metavar="N", help="Instead of the preset's own.")
@click.option("--seed", type=click.IntRange(0, 2**62), metavar="S", help="Instead of the preset's own.")
@device_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The run file to write.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bound the file: the newest N steps in full, older thinned.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")
@presets_option()
@gathered(RunOptions)
def run(options: RunOptions) -> None:
    """Train PRESET without a screen and record it in a run file."""
    preset = options.chosen()
    seed = preset.training.seed if options.seed is None else options.seed
    # torch is loaded here, after all that can be refused without it.
    from gradtui.analysis.summary import summarise
    from gradtui.engine.headless import Interrupted, train
    from gradtui.engine.process_setup import DeviceError, choose_device
    from gradtui.runs.reader import RunReader
    from gradtui.ui.text.report import report
    from gradtui.zoo.corpus import CorpusError

    try:
        choose_device(options.device)
    except DeviceError as error:
        raise Failure(str(error), USAGE) from error
    file = options.run_file(preset, seed)
    with progress_bar(preset.training.steps, preset.id) as bar:
        try:
            train(
                preset,
                seed=seed,
                device=options.device,
                run=file,
                keep=options.keep,
                on_frame=lambda _frame: bar.update(1),
            )
        except Interrupted as stop:
            bar.render_finish()
            raise Failure(f"{stop}; what was trained is in {file}", 128 + stop.signal) from stop
        except CorpusError as error:
            raise Failure(str(error)) from error
    with contextlib.closing(RunReader(file)) as reader:
        click.echo(json.dumps(summarise(reader)) if options.as_json else report(reader))
