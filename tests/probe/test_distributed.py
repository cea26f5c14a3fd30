"""Two processes that train one model: rank 0 records what a single process with the whole batch would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from probe.conftest import Recorded, norm
from probe.parallel_training import make, whole_batch

KINDS = ("ddp", "ddp, inner model", "fsdp2", "only rank 0 logs", "broken on rank 1", "only rank 0", "alone")

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], str]:
    directory = tmp_path_factory.mktemp("ranks")
    paths = {kind: directory / f"{kind}.gradtui" for kind in KINDS}
    script = Path(__file__).with_name("parallel_training.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    arguments = [f"{kind}={path}" for kind, path in paths.items()]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return paths, done.stdout + done.stderr


def reference(steps: int) -> Iterator[tuple[torch.nn.Module, list[torch.Tensor], float]]:
    """Per step: the model with its gradients, the stream's tensors with theirs, the loss; in one process."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        streams = [model.embedding(whole_batch(step))]
        for block in model.layers:
            streams.append(block(streams[-1]))
        for x in streams:
            x.retain_grad()
        loss = model.head(streams[-1]).square().mean()
        loss.backward()
        yield model, streams, loss.item()
        optimizer.step()


@pytest.mark.parametrize("kind", ["ddp", "ddp, inner model", "fsdp2", "only rank 0 logs"])
def test_rank_0_records_the_global_norms(kind: str, trained: tuple[dict[str, Path], str]) -> None:
    paths, output = trained
    run = Recorded(paths[kind])
    # FSDP2 hands a block another tensor than the one that the embedding returned: x_0 is then a site of its own.
    assert [name for name in run.names if name != "layers (input)"] == [
        "embedding", "layers.0", "layers.1", "layers.2", "head"
    ]  # fmt: skip
    points = sorted((s.stream, s.name) for s in run.sites if s.stream is not None)
    assert list(run.steps) == [0, 1, 2]
    for row, (model, streams, _) in enumerate(reference(3)):
        modules = dict(model.named_modules())
        for name in modules.keys() & set(run.names):
            parameters = list(modules[name].parameters())
            expected = norm(p.grad for p in parameters)
            assert run.value("grad_norm", name, row) == pytest.approx(expected, rel=1e-5)
            assert run.value("weight_norm", name, row) == pytest.approx(norm(parameters), rel=1e-5)
            ratio = 0.05 * expected / norm(parameters)
            assert run.value("update_ratio", name, row) == pytest.approx(ratio, rel=1e-4)
        for (_, name), x in zip(points, streams, strict=True):
            assert run.value("stream_grad", name, row) == pytest.approx(norm([x.grad]), rel=1e-5)
            rms = x.detach().square().mean().sqrt().item()
            assert run.value("act_rms", name, row) == pytest.approx(rms, rel=1e-5)
    assert f"{kind}: 3 collectives in 3 steps" in output
    assert run.facts["blind"] == []


def test_a_probe_that_fails_on_one_process_holds_no_other_up(trained: tuple[dict[str, Path], str]) -> None:
    paths, output = trained
    assert len(Recorded(paths["broken on rank 1"]).steps) == 3
    assert "training goes on without it" in output


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("only rank 0", "not all 2 processes have a probe"),
        ("alone", "2 processes train, but not this model together"),
    ],
)
def test_numbers_of_one_process_alone_are_called_that(
    kind: str, sentence: str, trained: tuple[dict[str, Path], str]
) -> None:
    run = Recorded(trained[0][kind])
    assert len(run.steps) == 3
    assert sentence in run.facts["blind"][0]
