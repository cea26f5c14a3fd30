"""Attaching changes nothing: not the numbers, not what copies and files of the model hold, not torch itself."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gradtui.probe.probe import Probe
from gradtui.runs.open_run import open_run
from probe.conftest import Net, Train, batch, loss_of, seeded


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_losses_gradients_and_random_state_are_bit_identical(tmp_path: Path) -> None:
    found = []
    for probed in (True, False):
        model = seeded(lambda: Net([nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)) for _ in range(3)]))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        probe = Probe(model, optimizer, run=tmp_path / "a.gradtui") if probed else None
        torch.manual_seed(5)
        losses, gradients = [], []
        for step in range(6):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            gradients += [p.grad.clone() for p in model.parameters()]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            losses.append(loss.item())
            if probe:
                probe.log(loss=loss)
        if probe:
            probe.close()
        found.append((losses, gradients, torch.random.get_rng_state(), list(model.parameters())))
    (loss_a, grads_a, rng_a, end_a), (loss_b, grads_b, rng_b, end_b) = found
    assert loss_a == loss_b
    assert all(map(torch.equal, grads_a, grads_b))
    assert torch.equal(rng_a, rng_b)
    assert all(map(torch.equal, end_a, end_b))


def test_a_copy_a_pickle_and_a_saved_model_carry_no_hook_of_the_probe(tmp_path: Path) -> None:
    model = seeded(Net)
    theirs = model.layers[0].register_forward_hook(print)
    keys = list(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters())
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(2):
            loss_of(copy.deepcopy(model), 9)  # in the middle of it all
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert hooks(model) > 1
        file = io.BytesIO()
        torch.save(model.head, file)
        file.seek(0)
        for clone in (
            copy.deepcopy(model),
            copy.copy(copy.deepcopy(model)),
            pickle.loads(pickle.dumps(copy.deepcopy(model).head)),
            torch.load(file, weights_only=False),
        ):
            assert hooks(clone) == (1 if isinstance(clone, Net) else 0)  # what the user hung on it stays
        assert list(model.state_dict()) == keys
        copy.deepcopy(optimizer)
        pickle.dumps(optimizer)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(before)
    theirs.remove()
    assert hooks(model) == 0
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_a_model_saved_while_probed_loads_where_gradtui_is_not_installed(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8)) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui", layers="0"):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys; sys.modules['gradtui'] = None; import torch;"
        f"m = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False);"
        "print(m(torch.ones(1, 8)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "torch.Size([1, 8])", done.stderr


def test_training_a_copy_adds_nothing_to_the_run(tmp_path: Path) -> None:
    runs = []
    for with_copy in (False, True):
        model = seeded(Net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        path = tmp_path / f"{with_copy}.gradtui"
        with Probe(model, optimizer, run=path):
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                if with_copy:
                    loss_of(copy.deepcopy(model), step).backward()
                optimizer.step()
        runs.append(open_run(path).metric("stream_grad"))
    assert (runs[0] == runs[1]).all()


def test_torch_is_as_it_was_once_no_probe_is_attached(train: Train) -> None:
    from torch.amp.grad_scaler import GradScaler
    from torch.nn.utils import clip_grad

    before = (clip_grad._group_tensors_by_device_and_dtype, GradScaler.step)
    train(seeded(Net))
    assert (clip_grad._group_tensors_by_device_and_dtype, GradScaler.step) == before


def test_a_user_hook_on_the_same_tensor_still_works_and_can_be_removed(tmp_path: Path) -> None:
    model = seeded(Net)
    seen: list[float] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Probe(model, optimizer, run=tmp_path / "a.gradtui"):
        for step in range(3):
            optimizer.zero_grad()
            x = model.embedding(batch(step))
            kept = x.register_hook(lambda grad: seen.append(float(grad.norm())))
            dropped = x.register_hook(lambda grad: grad * 100)
            dropped.remove()
            x.retain_grad()
            for block in model.layers:
                x = block(x)
            model.head(x).square().mean().backward()
            optimizer.step()
            kept.remove()
    run = open_run(tmp_path / "a.gradtui")
    assert seen == pytest.approx(run.metric("stream_grad")[:, 0], rel=1e-5)
