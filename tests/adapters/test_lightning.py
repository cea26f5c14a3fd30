"""The callback in a real Lightning `Trainer`, with automatic and with manual optimization."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

from gradtui.adapters.lightning import GradtuiCallback  # noqa: E402
from gradtui.runs.open_run import OpenRun, open_run  # noqa: E402

BATCH, WIDTH, LAYERS = 2, 8, 3

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*num_workers"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step. but have no"),
    pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path."),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD + torch.tanh(self.linear(self.norm(x_BD)))


class Model(lightning.LightningModule):
    """A small residual network; `fail_at` raises `error` in the training step of that batch."""

    def __init__(self, *, fail_at: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.entry = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)
        self.fail_at, self.error = fail_at, error
        self.losses: list[float] = []

    def forward(self, x_BD: Tensor) -> Tensor:
        x_BD = self.entry(x_BD)
        for block in self.blocks:
            x_BD = block(x_BD)
        return self.head(x_BD)

    def loss(self, batch: list[Tensor]) -> Tensor:
        x_BD, y_B = batch
        return (self(x_BD).squeeze(-1) - y_B).square().mean()

    def training_step(self, batch: list[Tensor], index: int) -> Any:
        if index == self.fail_at and self.error is not None:
            raise self.error
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.loss(batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def make_batch(*rows: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    x_ND, y_N = torch.randn(16, WIDTH, generator=generator), torch.randn(16, generator=generator)
    return [x_ND[list(rows)], y_N[list(rows)]]


def make_loader() -> Any:
    data = torch.utils.data.TensorDataset(*make_batch(*range(16)))
    return torch.utils.data.DataLoader(data, batch_size=BATCH)


def make_trainer(tmp_path: Path, *callbacks: Any, **options: Any) -> Any:
    settings = {
        "accelerator": "cpu",
        "max_steps": 3,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
    }
    return lightning.Trainer(callbacks=list(callbacks), **settings | options)


def record(tmp_path: Path, model: Any = None, *, validate: bool = False, **options: Any) -> tuple[Any, OpenRun]:
    callback = GradtuiCallback()
    model = Model() if model is None else model
    loaders = [make_loader()] * (2 if validate else 1)
    make_trainer(tmp_path, callback, **options).fit(model, *loaders)
    assert callback.path is not None
    return model, open_run(callback.path)


def norm(parameters: Any) -> float:
    return float(nn.utils.get_total_norm([p.grad for p in parameters]))


def of_blocks(run: OpenRun, metric: str, step: int) -> list[float]:
    blocks = [index for index, site in enumerate(run.sites) if site.kind == "block"]
    assert [run.sites[index].name for index in blocks] == [f"blocks.{layer}" for layer in range(LAYERS)]
    return run.metric(metric)[step][blocks].tolist()


def plain(*rows: int) -> tuple[float, list[float], list[float]]:
    """Loss, weight gradients and stream gradients of the blocks at the start, without any framework."""
    twin = Model()
    stream: list[Tensor] = []
    for block in twin.blocks:
        block.register_forward_hook(lambda _module, _args, out: stream.append(out))
    loss = twin.loss(make_batch(*rows))
    gradients = torch.autograd.grad(loss, stream, retain_graph=True)
    loss.backward()
    return loss.item(), [norm(b.parameters()) for b in twin.blocks], [g.norm().item() for g in gradients]


def test_the_first_step_is_recorded_whole_and_equals_plain_autograd(tmp_path: Path) -> None:
    _, run = record(tmp_path)
    loss, weights, stream = plain(0, 1)
    assert run.steps.tolist() == [0, 1, 2]
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=1e-5)
    assert of_blocks(run, "stream_grad", 0) == pytest.approx(stream, rel=1e-5)
    assert run.loss[0] == pytest.approx(loss, rel=1e-6)
    assert (run.status, run.facts["blind"]) == ("done", [])


def test_the_update_is_that_of_the_step_which_was_taken(tmp_path: Path) -> None:
    model, run = record(tmp_path, max_steps=1)
    for layer, (new, old) in enumerate(zip(model.blocks, Model().blocks, strict=True)):
        before, after = (nn.utils.parameters_to_vector(block.parameters()).detach() for block in (old, new))
        ratio = float((after - before).norm() / before.norm())
        assert of_blocks(run, "update_ratio", 0)[layer] == pytest.approx(ratio, rel=1e-4)


def test_each_step_has_its_loss_and_its_learning_rate(tmp_path: Path) -> None:
    model, run = record(tmp_path, max_steps=-1, max_epochs=2, limit_train_batches=2)
    assert run.loss.tolist() == pytest.approx(model.losses, rel=1e-6)
    assert run.lr.tolist() == pytest.approx([1e-2, 1e-2, 5e-3, 5e-3])


def test_training_is_the_same_with_the_callback_as_without(tmp_path: Path) -> None:
    model, _ = record(tmp_path)
    twin = Model()
    make_trainer(tmp_path).fit(twin, make_loader())
    assert model.losses == twin.losses
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_accumulated_batches_are_one_step_with_the_gradient_of_all(tmp_path: Path) -> None:
    model, run = record(tmp_path, accumulate_grad_batches=4, max_steps=2)
    loss, weights, _ = plain(*range(8))
    assert run.steps.tolist() == [0, 1]
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=1e-4)
    assert run.loss.tolist() == pytest.approx(np.reshape(model.losses, (2, 4)).mean(1).tolist(), rel=1e-5)
    assert run.loss[0] == pytest.approx(loss, rel=1e-5)


def test_clipping_shows_the_norm_before_and_after(tmp_path: Path) -> None:
    _, run = record(tmp_path, gradient_clip_val=0.1)
    _, weights, _ = plain(0, 1)
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=1e-5)
    clipped = np.sqrt(np.nansum(run.metric("clipped_norm") ** 2, axis=1))
    assert clipped.tolist() == pytest.approx([0.1] * 3, rel=1e-3)


def test_mixed_precision_is_recorded(tmp_path: Path) -> None:
    model, run = record(tmp_path, precision="bf16-mixed")
    _, weights, _ = plain(0, 1)
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=0.1)
    assert np.isfinite(of_blocks(run, "stream_grad", 0)).all()
    assert run.loss.tolist() == pytest.approx(model.losses, rel=1e-2)


def test_sanity_check_and_validation_are_not_counted(tmp_path: Path) -> None:
    _, run = record(tmp_path, validate=True, num_sanity_val_steps=2, val_check_interval=1)
    _, alone = record(tmp_path)
    for metric in run.metrics:
        np.testing.assert_array_equal(run.metric(metric), alone.metric(metric))
    assert run.loss.tolist() == alone.loss.tolist()


class Manual(Model):
    """Steps by itself, every second batch; hands its loss in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], index: int) -> Any:
        loss = super().training_step(batch, index)
        optimizer = self.optimizers()
        self.manual_backward(loss / 2)
        if index % 2:
            self.clip_gradients(optimizer, gradient_clip_val=0.1)
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": loss}


def test_manual_optimization_is_recorded_at_each_step_of_the_optimizer(tmp_path: Path) -> None:
    model, run = record(tmp_path, Manual())
    loss, weights, _ = plain(0, 1, 2, 3)
    assert run.steps.tolist() == [0, 1, 2]
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=1e-4)
    assert run.loss.tolist() == pytest.approx(np.reshape(model.losses, (3, 2)).mean(1).tolist(), rel=1e-5)
    assert run.loss[0] == pytest.approx(loss, rel=1e-5)


class Adversarial(lightning.LightningModule):
    """Two networks and two optimizers, each toggled while the other's turn is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.discriminator = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        self.expected: list[dict[str, float]] = []

    def training_step(self, batch: list[Tensor], index: int) -> None:
        x_BD = batch[0]
        norms = {}
        turns = zip(("discriminator", "generator"), self.optimizers(), strict=True)
        for name, optimizer in turns:
            self.toggle_optimizer(optimizer)
            sign = 1 if name == "discriminator" else -1
            loss = sign * self.discriminator(self.generator(x_BD)).mean()
            self.manual_backward(loss)
            for site, module in self.named_modules():
                if site.startswith(f"{name}.") and list(module.parameters()):
                    norms[site] = norm(module.parameters())
            self.clip_gradients(optimizer, gradient_clip_val=0.1)
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
        self.expected.append(norms)

    def configure_optimizers(self) -> Any:
        parts = (self.discriminator, self.generator)
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts], []


def test_two_optimizers_that_take_turns_are_one_step_with_the_gradients_of_both(tmp_path: Path) -> None:
    model, run = record(tmp_path, Adversarial(), max_steps=6)
    assert run.steps.tolist() == [0, 1, 2]
    names = [site.name for site in run.sites]
    for step, expected in enumerate(model.expected):
        recorded = dict(zip(names, run.metric("grad_norm")[step].tolist(), strict=True))
        assert {name: recorded[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert np.isnan(run.loss).all()


@pytest.mark.filterwarnings("ignore:gradtui")
def test_a_compiled_model_trains_and_the_run_says_what_cannot_be_seen(tmp_path: Path) -> None:
    callback = GradtuiCallback()
    model = Model()
    make_trainer(tmp_path, callback).fit(torch.compile(model, backend="eager"), make_loader())
    run = open_run(callback.path)
    assert (run.status, run.steps.tolist()) == ("done", [0, 1, 2])
    _, weights, _ = plain(0, 1)
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(weights, rel=1e-5)
    seen = np.isfinite(of_blocks(run, "stream_grad", -1)).all()
    assert seen or "torch.compile" in run.facts["blind"][0]


@pytest.mark.parametrize(
    ("error", "raised", "status", "reason"),
    [
        (RuntimeError("out of luck"), RuntimeError, "failed", "RuntimeError: out of luck"),
        (KeyboardInterrupt(), SystemExit, "stopped", "interrupted"),
    ],
)
def test_an_error_in_training_closes_the_run(
    tmp_path: Path, error: BaseException, raised: type[BaseException], status: str, reason: str
) -> None:
    before = signal.getsignal(signal.SIGINT)
    callback = GradtuiCallback()
    model = Model(fail_at=2, error=error)
    try:
        with pytest.raises(raised):
            make_trainer(tmp_path, callback).fit(model, make_loader())
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning lets it be ignored after the first
    run = open_run(callback.path)
    assert (run.status, run.facts["reason"], run.steps.tolist()) == (status, reason, [0, 1])
    assert not any(module._forward_hooks for module in model.modules())


def test_each_fit_is_a_run_of_its_own(tmp_path: Path) -> None:
    callback = GradtuiCallback(run=tmp_path / "mine.gradtui", every=2, metrics=["grad_norm"], layers="blocks")
    for stem in ("mine", "mine-2"):
        make_trainer(tmp_path, callback).fit(Model(), make_loader())
        run = open_run(tmp_path / f"{stem}.gradtui")
        assert (run.status, run.metrics, run.steps.tolist()) == ("done", ("grad_norm",), [0, 2])


def test_checkpoints_are_written_and_resumed_from_while_attached(tmp_path: Path) -> None:
    saves = lightning.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    callback = GradtuiCallback()
    options = {"max_steps": 4, "limit_train_batches": 2}  # resumed where an epoch ends: its data are not repeated
    make_trainer(tmp_path, callback, saves, enable_checkpointing=True, **options).fit(Model(), make_loader())
    whole = open_run(callback.path)
    again = GradtuiCallback()
    trainer = make_trainer(tmp_path, again, **options)
    trainer.fit(Model(), make_loader(), ckpt_path=tmp_path / "epoch=0-step=2.ckpt")
    rest = open_run(again.path)
    np.testing.assert_allclose(rest.metric("grad_norm")[0], whole.metric("grad_norm")[2], rtol=1e-4)


def test_layers_that_do_not_exist_are_refused_when_training_begins(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, GradtuiCallback(layers="decoder"))
    with pytest.raises(ValueError, match=r"decoder.*blocks"):
        trainer.fit(Model(), make_loader())
