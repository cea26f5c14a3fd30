"""What `gradtui exec` records of a script that trains, and that the training is the same as without it."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from script.programs import Done, plain, recorded

from gradtui.runs.reader import RunReader
from gradtui.script.plan import run_paths

HERE = Path(__file__).parent


def autograd(steps: int) -> list[dict[str, list[float]]]:
    """Gradient norms of trained.py's first steps by plain autograd: of its sites' weights, and of its stream."""
    spec = importlib.util.spec_from_file_location("trained", HERE / "trained.py")
    assert spec is not None
    assert spec.loader is not None
    trained = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trained)
    net, optimizer = trained.start()
    found = []
    for _ in range(steps):
        x = torch.randn(16, 4)
        stream = [net.embedding(x)]
        for layer in net.layers:
            stream.append(layer(stream[-1]))
        loss = (net.head(stream[-1]) ** 2).mean()
        at_stream = torch.autograd.grad(loss, stream, retain_graph=True)
        optimizer.zero_grad()
        loss.backward()
        sites = [net.embedding, *net.layers, net.head]
        weights = [torch.cat([p.grad.flatten() for p in site.parameters()]).norm().item() for site in sites]
        found.append({"grad_norm": weights, "stream_grad": [g.norm().item() for g in at_stream]})
        optimizer.step()
    return found


def test_a_script_trains_the_same_and_its_first_steps_are_recorded_as_autograd_has_them(tmp_path: Path) -> None:
    script = HERE / "trained.py"
    expected = plain([str(script)], tmp_path)
    done = recorded([str(script)], tmp_path, "--run", "out.gradtui", "--name", "mine")
    assert (done.code, done.out, done.err) == (
        0,
        expected.out,
        f"gradtui: recorded in {tmp_path / 'out.gradtui'}\n",
    )
    with contextlib.closing(RunReader(tmp_path / "out.gradtui")) as reader:
        names = [site.name for site in reader.sites]
        at = [names.index(name) for name in ("embedding", "layers.0", "layers.1", "layers.2", "head")]
        stream = [reader.stream_sites[index] for index in range(4)]
        for step, truth in enumerate(autograd(2)):
            np.testing.assert_allclose(reader.metric("grad_norm")[step][at], truth["grad_norm"], rtol=1e-5)
            gradients = reader.metric("stream_grad")[step][stream]
            np.testing.assert_allclose(gradients, truth["stream_grad"], rtol=1e-5)
        losses = [float.fromhex(line.split()[1]) for line in done.out.splitlines()[:5]]
        np.testing.assert_allclose(reader.losses(), losses, rtol=1e-6)
        facts = reader.facts
        assert (facts["source"], facts["name"], facts["script"]) == ("script", "mine", str(script))
        assert (facts["blind"], reader.status) == ([], "done")


@pytest.mark.parametrize(
    ("how", "code", "status", "reason"),
    [
        ("raise", 1, "failed", "ValueError: the loss is too high"),
        ("exit", 3, "failed", "exit code 3"),
        ("kill", -signal.SIGTERM, "stopped", f"signal {signal.SIGTERM}"),
        ("leave", 0, "done", ""),
        ("interrupt", -signal.SIGINT, "stopped", "KeyboardInterrupt"),
    ],
)
def test_a_run_says_how_its_script_ended(how: str, code: int, status: str, reason: str, tmp_path: Path) -> None:
    done = recorded([str(HERE / "trained.py"), how], tmp_path, "--run", "out.gradtui", "--every", "2")
    assert done.code == code
    assert done.of_gradtui == [f"gradtui: recorded in {tmp_path / 'out.gradtui'}"]
    with contextlib.closing(RunReader(tmp_path / "out.gradtui")) as reader:
        assert (reader.status, reader.facts["reason"]) == (status, reason)
        assert reader.last_step == 4
        assert len(reader.losses()) == 3


def test_the_workers_of_a_script_are_not_recorded(tmp_path: Path) -> None:
    done = recorded([str(HERE / "trained.py"), "workers"], tmp_path, "--run", "out.gradtui")
    assert done.out.splitlines()[-1] == "rows 5"
    assert done.of_gradtui == [f"gradtui: recorded in {tmp_path / 'out.gradtui'}"]
    assert len(list(tmp_path.glob("*.gradtui"))) == 1
    with contextlib.closing(RunReader(tmp_path / "out.gradtui")) as reader:
        assert (reader.status, reader.last_step) == ("done", 14)


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """The script of unusual ways to train, run once, and its first run file."""
    directory = tmp_path_factory.mktemp("unusual")
    done = recorded([str(HERE / "unusual.py")], directory, "--run", "out.gradtui", "--name", "u")
    assert done.code == 0, done.err
    return done, directory / "out.gradtui"


def by_model(run: Path) -> dict[str, list[RunReader]]:
    """The run files of a script by what it calls its models."""
    found = defaultdict(list)
    for path in run_paths(run):
        reader = RunReader(path)
        found[str(reader.facts["name"]).removeprefix("u").strip()].append(reader)
    return found


def test_every_model_of_a_script_has_a_run_of_its_own_with_its_own_losses(unusual: tuple[Done, Path]) -> None:
    done, run = unusual
    told = defaultdict(list)
    for line in done.out.splitlines():
        if line.startswith("LOSS "):
            told[line.split()[1]].append(float(line.split()[2]))
    runs = by_model(run)
    runs["curved"] = runs.pop("")
    assert {name: len(readers) for name, readers in runs.items()} == dict.fromkeys(told, 1) | {"tuned": 2}
    for name, readers in runs.items():
        losses = np.concatenate([reader.losses() for reader in readers])
        # What was recorded late, because it turned out late what to record, is right all the same.
        assert len(losses) == len(told[name]) or name in ("partly", "tuned", "curved")
        expected = [loss for loss in told[name] if np.isclose(losses, loss, rtol=1e-5).any()]
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        assert all(reader.status == "done" for reader in readers)


def test_modules_that_only_an_optimizer_holds_together_are_one_model(unusual: tuple[Done, Path]) -> None:
    (reader,) = by_model(unusual[1])["Together"]
    assert [site.name for site in reader.sites] == ["encoder", "decoder", "scale"]
    assert np.isfinite(reader.metric("grad_norm")).all()


def test_models_that_a_script_has_let_go_are_freed(unusual: tuple[Done, Path]) -> None:
    assert "RELEASED True True" in unusual[0].out


def test_no_traceback_shows_a_frame_of_gradtui(tmp_path: Path) -> None:
    done = recorded([str(HERE / "mistaken.py")], tmp_path, "--run", "out.gradtui")
    expected = plain([str(HERE / "mistaken.py")], tmp_path)
    for error, alone in zip(done.out.split("=====\n"), expected.out.split("=====\n"), strict=True):
        if "in wrong_shape" in alone:  # on its way through a model with hooks, torch has other frames of its own
            assert "gradtui" not in error.replace(str(HERE), "")
            assert error.splitlines()[-2:] == alone.splitlines()[-2:]
        else:
            assert error == alone


@pytest.mark.slow
def test_compiled_models_are_recorded_and_compiled_without_complaint(tmp_path: Path) -> None:
    done = recorded([str(HERE / "compiled.py")], tmp_path, "--run", "out.gradtui")
    expected = plain([str(HERE / "compiled.py")], tmp_path)
    assert (done.code, done.out) == (0, expected.out)
    assert "global hooks" not in done.err
    losses = np.array([float.fromhex(line) for line in done.out.split()]).reshape(3, 4)
    for path, expected_losses in zip(run_paths(tmp_path / "out.gradtui"), losses, strict=True):
        with contextlib.closing(RunReader(path)) as reader:
            recorded_losses = reader.losses()
            np.testing.assert_allclose(recorded_losses, expected_losses[-len(recorded_losses) :], rtol=1e-5)
            assert len(recorded_losses) >= 2
            assert np.isfinite(reader.metric("grad_norm")[:, [s.kind != "input" for s in reader.sites]]).all()


def test_a_problem_of_the_recording_is_one_sentence_and_the_training_goes_on(tmp_path: Path) -> None:
    script = HERE / "trained.py"
    done = recorded([str(script)], tmp_path, "--run", "out.gradtui", "--layers", "transformer.h")
    assert (done.code, len(done.out.splitlines())) == (0, 6)
    assert "transformer.h" in done.of_gradtui[0]
    assert "layers" in done.of_gradtui[0]
    assert done.own_err == ""
    assert not list(tmp_path.glob("*.gradtui"))
