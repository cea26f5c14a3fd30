"""Run files that an earlier version wrote open, and show what that version's reader showed of them.

`recorded/` holds a run of the preset post-ln (40 steps), one of k3-latent-moe (25 steps, with readings; file
`preset`) and one of a training script whose gradients are clipped (60 steps; file `script`). gradtui 0.1.0 wrote
all on a CPU, with run file version 2, and printed `post-ln.json` for the first (`gradtui run --json`). The numbers
below are what the reader of that version returned.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gradtui.analysis.series import RunSeries
from gradtui.analysis.summary import summarise
from gradtui.cli.main import cli
from gradtui.presets.config import unflatten
from gradtui.runs.open_run import open_run
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Event
from gradtui.ui.text.report import report

RECORDED = Path(__file__).parent / "recorded"
OF_PRESETS = (
    "grad_norm", "act_rms", "stream_grad", "weight_norm", "update_ratio", "mean_share", "trunk_share",
)  # fmt: skip
OF_SCRIPT = (*OF_PRESETS[:5], "clipped_norm")
NAN = float("nan")
Reader = Callable[[str], RunReader]


@pytest.fixture
def path(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a recorded file: readers leave nothing beside the original."""
    return lambda name: Path(shutil.copy(RECORDED / name, tmp_path))


@pytest.fixture
def read(path: Callable[[str], Path]) -> Iterator[Reader]:
    readers = []

    def open_(name: str) -> RunReader:
        readers.append(RunReader(path(f"{name}.gradtui")))
        return readers[-1]

    yield open_
    for reader in readers:
        reader.close()


@pytest.mark.parametrize(
    ("name", "steps", "metrics", "facts"),
    [
        ("post-ln", 40, OF_PRESETS, {"name": "post-ln", "source": "preset", "seed": 0, "parameters": 636928}),
        ("preset", 25, OF_PRESETS, {"name": "k3-latent-moe", "seed": 1, "tokens_per_step": 512, "steps": 25}),
        (
            "script",
            60,
            (*OF_PRESETS[:5], "clipped_norm"),
            {"script": "/home/ada/train.py", "every": 1, "blind": []},
        ),
    ],
)
def test_facts_steps_and_metrics_are_as_recorded(
    read: Reader, name: str, steps: int, metrics: tuple[str, ...], facts: dict[str, object]
) -> None:
    run = read(name)
    assert (run.status, run.recorded, run.first_step, run.last_step) == ("done", steps, 0, steps - 1)
    assert run.metrics == metrics
    assert facts.items() <= run.facts.items()
    assert run.thinned is None


@pytest.mark.parametrize(
    ("name", "count", "first", "last", "stream"),
    [
        ("post-ln", 26, ("embedding", None, "embedding", 0), ("head", None, "head", None), tuple(range(0, 26, 2))),
        ("preset", 11, ("embedding", None, "embedding", 0), ("head", None, "head", None), (0, 2, 4, 6, 8)),
        ("script", 6, ("0", None, "module", 0), ("2", None, "module", None), (0, 1, 2, 3, 4)),
    ],
)
def test_sites_are_as_recorded(
    read: Reader,
    name: str,
    count: int,
    first: tuple[object, ...],
    last: tuple[object, ...],
    stream: tuple[int, ...],
) -> None:
    run = read(name)
    assert len(run.sites) == count
    assert [(s.name, s.layer, s.kind, s.stream) for s in (run.sites[0], run.sites[-1])] == [first, last]
    assert run.stream_sites == stream
    assert {site.stack for site in run.sites} == {""}


@pytest.mark.parametrize(
    ("name", "metric", "first", "last", "total"),
    [
        ("post-ln", "grad_norm", 0.08394890278577805, 6.067229332984425e-05, 155.905478306413),
        ("post-ln", "act_rms", 1.9830596446990967, 1.9726910591125488, 1088.263049006462),
        ("post-ln", "stream_grad", 0.025745926424860954, 2.1874857338843867e-05, 6.193267575833488),
        ("post-ln", "weight_norm", 181.6598663330078, NAN, 12503.55249786377),
        ("post-ln", "update_ratio", 0.00046351380296982825, NAN, 1.6195144315133803),
        ("post-ln", "mean_share", 0.012552283704280853, 0.01167968474328518, 10.97699651300568),
        ("post-ln", "trunk_share", NAN, NAN, 363.72892785072327),
        ("preset", "grad_norm", 0.057902708649635315, 0.008965368382632732, 63.93741893954575),
        ("preset", "trunk_share", NAN, NAN, 167.9999988079071),
        ("script", "stream_grad", 0.0907256156206131, 0.0007515255128964782, 2.9560306041967124),
        ("script", "update_ratio", 0.03475004434585571, NAN, 1.1723655989626423),
        ("script", "clipped_norm", 0.3263905942440033, 0.0031291786581277847, 12.679944472038187),
    ],
)
def test_numbers_are_as_recorded(
    read: Reader, name: str, metric: str, first: float, last: float, total: float
) -> None:
    """Of the first site at the first and the last step, and the sum over all."""
    values = read(name).metric(metric)
    np.testing.assert_array_equal(values[[0, -1], 0], np.array([first, last], np.float32))
    assert np.nansum(values.astype(np.float64)) == pytest.approx(total, rel=1e-12)


def test_losses_windows_and_events_are_as_recorded(read: Reader) -> None:
    run = read("post-ln")
    assert run.losses()[[0, 1, -1]].tolist() == [5.7672038078308105, 4.9555182456970215, 2.9296979904174805]
    assert run.events() == [Event(7, "vanished", 0, 0.008394509604617835)]
    window = run.window("grad_norm", 0, 40, 1)
    assert window.steps.tolist() == [0, 16, 32]
    assert float(window.low[0, 0]) == 6.777575617888942e-05
    assert float(window.mean[0, 0]) == 0.007575185503810644
    assert float(window.high[0, 0]) == 0.08394890278577805


def test_readings_are_as_recorded(read: Reader) -> None:
    run = read("preset")
    assert run.reading_names == ("routed_rms", "latent_rms", "out_rms", "load", "out_grad")
    found = {name: run.readings(name, 24) for name in run.reading_names}
    assert {reading[0] for reading in found.values() if reading} == {20}
    first = {name: reading[1][2].tolist() for name, reading in found.items() if reading}
    assert first == {
        "routed_rms": [0.1285647600889206, 0.24351686239242554, 0.38977813720703125],
        "latent_rms": [0.9934988617897034, 0.9967220425605774, 1.000756859779358],
        "out_rms": [0.7305260896682739, 0.8510792851448059, 0.9817343950271606],
        "load": [2.84375],
        "out_grad": [0.02838972769677639],
    }


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        (
            "post-ln",
            "Layer 0 gets 8e-4 of the last layer's gradient since step 7: vanished. At step 0 it was even: the "
            "first optimizer steps began this, not the initialisation.\n"
            "flow ratio (gradient at layer 0 / at the last layer): 0.92 at step 0, least 5e-4, now 8e-4\n"
            "loss 5.8 → 3.4 (mean of the last 10 steps)\n",
        ),
        (
            "preset",
            "Healthy: within 1.5× across depth; layer 0 gets the most.\n"
            "flow ratio (gradient at layer 0 / at the last layer): 1.9 at step 0, least 1.5, now 1.5\n"
            "loss 5.7 → 3.6 (mean of the last 10 steps)\n",
        ),
        (
            "script",
            "Healthy: within 3× across depth; layer 0 gets the least.\n"
            "flow ratio (gradient at layer 0 / at the last layer): 1.1 at step 0, least 0.33, now 0.34\n"
            "loss 0.11 → 1e-4 (mean of the last 10 steps)\n",
        ),
    ],
)
def test_the_verdict_is_the_one_that_was_printed(read: Reader, name: str, sentences: str) -> None:
    assert report(read(name)).startswith(sentences)


def test_the_summary_is_the_one_that_was_printed_as_json(read: Reader) -> None:
    printed = json.loads((RECORDED / "post-ln.json").read_text())
    summary = summarise(read("post-ln"))
    del summary["run"]  # where the file lay
    assert summary == printed


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("post-ln", "b9e7b3ccfd95666c6bd0bebe4c91aa9c550a582f0957b6c4bc2f20019a66cd5c"),
        ("preset", "87640b4ae3646e2c1ca19212011642093f10769120924874d8e8113bc18c41fd"),
        ("script", "198e4c08cf16d3fcef8cd859f962fc5625ad6a10bf4f93da95005395605cab08"),
    ],
)
def test_the_exported_table_is_the_same_to_the_byte(path: Callable[[str], Path], name: str, digest: str) -> None:
    """SHA-256 of `gradtui export FILE --format csv`."""
    done = CliRunner().invoke(cli, ["export", str(path(f"{name}.gradtui")), "--format", "csv"])
    assert done.exit_code == 0, done.output
    assert hashlib.sha256(done.stdout.encode()).hexdigest() == digest


@pytest.mark.parametrize("kind", ["npz", "svg"])
def test_archives_and_figures_are_made_of_every_metric(path: Callable[[str], Path], kind: str) -> None:
    if kind == "svg":
        pytest.importorskip("matplotlib", reason="figures need the extra 'export'")
    file = path("script.gradtui")
    metrics = [argument for name in OF_SCRIPT for argument in ("--metric", name)]
    done = CliRunner().invoke(cli, ["export", str(file), "--format", kind, *metrics])
    assert done.exit_code == 0, done.output
    assert file.with_suffix(f".{kind}").stat().st_size > 1000


def test_every_metric_and_reading_can_be_drawn_by_depth(read: Reader) -> None:
    series = RunSeries(read("preset"))
    view = series.at(None)
    assert view is not None
    points = {name: len(curve.x) for name in OF_PRESETS if (curve := view.curve(name)) is not None}
    assert points == {"grad_norm": 4, "weight_norm": 4, "update_ratio": 4, "trunk_share": 8} | dict.fromkeys(
        ("act_rms", "stream_grad", "mean_share"), 5
    )
    assert series.sampled == ("weight_norm", "update_ratio")
    for name in series.reader.reading_names:
        reading = series.reading(name)
        assert reading is not None
        assert (reading.step, len(reading.vectors)) == (20, 4)


def test_a_notebook_gets_the_recorded_preset_and_numbers(path: Callable[[str], Path]) -> None:
    with open_run(path("post-ln.gradtui")) as run:
        assert run.metric("grad_norm").shape == (40, 26)
        assert run.loss[0] == 5.7672038078308105
        assert run.facts["preset"]["model"]["topology"] == "post"


def test_the_recorded_preset_is_understood(read: Reader) -> None:
    preset = unflatten(read("post-ln").facts["preset"])
    assert (preset.name("en"), preset.name("zh")) == ("Post-LN", "Post-LN")
    assert preset.summary("zh").startswith("2017 原版接法")
    assert (preset.model.layers, preset.training.steps) == (12, 40)
