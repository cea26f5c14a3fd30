"""The callback in a real Hugging Face `Trainer`; models are made from their configuration, nothing is fetched."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="transformers trains only with accelerate, which is not installed")

from gradtui.adapters.huggingface import GradtuiCallback  # noqa: E402
from gradtui.runs.open_run import OpenRun, open_run  # noqa: E402

BATCH, TIME, VOCABULARY, LAYERS = 2, 8, 32, 3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=TIME,
        n_embd=16,
        n_layer=LAYERS,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.0
    return transformers.GPT2LMHeadModel(config)


def make_data(count: int = 16) -> list[dict[str, Tensor]]:
    tokens = torch.randint(0, VOCABULARY, (count, TIME), generator=torch.Generator().manual_seed(1))
    # The first token is nobody's prediction; unmasked, the Trainer would count it when it takes the mean.
    labels = tokens.clone()
    labels[:, 0] = -100
    return [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]


class InOrder(transformers.Trainer):
    """Takes the data as they come, so that a test knows what each step sees."""

    def _get_train_sampler(self, *_args: Any, **_kwargs: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def make_trainer(
    tmp_path: Path,
    callback: GradtuiCallback | None,
    *,
    model: nn.Module | None = None,
    kind: type[Any] = InOrder,
    more: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    settings = {
        "output_dir": str(tmp_path / "output"),
        "per_device_train_batch_size": BATCH,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return kind(
        model=make_model() if model is None else model,
        args=transformers.TrainingArguments(**settings | arguments),
        train_dataset=make_data(),
        callbacks=[] if callback is None else [callback],
        **(more or {}),
    )


def record(tmp_path: Path, **options: Any) -> tuple[Any, OpenRun]:
    callback = GradtuiCallback()
    trainer = make_trainer(tmp_path, callback, **options)
    trainer.train()
    assert callback.path is not None
    return trainer, open_run(callback.path)


def logged(trainer: Any, what: str) -> list[float]:
    return [entry[what] for entry in trainer.state.log_history if what in entry]


def batch(*rows: int) -> Tensor:
    return torch.stack([make_data()[row]["input_ids"] for row in rows])


def block_norms(model: nn.Module) -> list[float]:
    blocks = model.transformer.h
    return [float(nn.utils.get_total_norm([p.grad for p in block.parameters()])) for block in blocks]


def of_blocks(run: OpenRun, metric: str, step: int) -> list[float]:
    blocks = [index for index, site in enumerate(run.sites) if site.kind == "block"]
    assert [run.sites[index].name for index in blocks] == [f"transformer.h.{layer}" for layer in range(LAYERS)]
    return run.metric(metric)[step][blocks].tolist()


def test_the_first_step_is_recorded_whole_and_equals_plain_autograd(tmp_path: Path) -> None:
    _, run = record(tmp_path)
    twin = make_model()
    stream: list[Tensor] = []
    for block in twin.transformer.h:
        block.register_forward_hook(lambda _m, _i, out: stream.append(out if isinstance(out, Tensor) else out[0]))
    tokens = batch(0, 1)
    loss = twin(input_ids=tokens, labels=tokens).loss
    gradients = torch.autograd.grad(loss, stream, retain_graph=True)
    loss.backward()
    assert run.steps.tolist() == [0, 1, 2]
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(block_norms(twin), rel=1e-5)
    assert of_blocks(run, "stream_grad", 0) == pytest.approx([float(g.norm()) for g in gradients], rel=1e-5)
    rms = [float(x.detach().square().mean().sqrt()) for x in stream]
    assert of_blocks(run, "act_rms", 0) == pytest.approx(rms, rel=1e-5)
    assert run.loss[0] == pytest.approx(loss.item(), rel=1e-6)
    assert run.status == "done"
    assert run.facts["blind"] == []


def test_loss_and_learning_rate_are_those_that_the_trainer_logs(tmp_path: Path) -> None:
    trainer, run = record(tmp_path)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)
    assert run.lr.tolist() == pytest.approx([1e-2, 1e-2 * 2 / 3, 1e-2 / 3], rel=1e-6)


def test_the_update_is_that_of_the_step_which_was_taken(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, max_steps=1)
    for layer, (new, old) in enumerate(zip(trainer.model.transformer.h, make_model().transformer.h, strict=True)):
        before, after = (nn.utils.parameters_to_vector(block.parameters()).detach() for block in (old, new))
        ratio = float((after - before).norm() / before.norm())
        assert of_blocks(run, "update_ratio", 0)[layer] == pytest.approx(ratio, rel=1e-4)


def test_training_is_the_same_with_the_callback_as_without(tmp_path: Path) -> None:
    with_it, without = make_trainer(tmp_path, GradtuiCallback()), make_trainer(tmp_path, None)
    with_it.train()
    without.train()
    assert logged(with_it, "loss") == logged(without, "loss")
    for mine, theirs in zip(with_it.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_gradient_accumulation_is_one_step_with_the_gradient_of_all_its_batches(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, gradient_accumulation_steps=4, max_steps=2)
    twin = make_model()
    tokens = batch(*range(8))
    loss = twin(input_ids=tokens, labels=tokens).loss
    loss.backward()
    assert run.steps.tolist() == [0, 1]
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(block_norms(twin), rel=1e-4)
    assert run.loss[0] == pytest.approx(loss.item(), rel=1e-5)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)


def test_a_loss_of_the_users_own_is_recorded_as_the_trainer_reports_it(tmp_path: Path) -> None:
    class Doubled(InOrder):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return 2 * super().compute_loss(*args, **kwargs)

    trainer, run = record(tmp_path, kind=Doubled)
    tokens = batch(0, 1)
    assert run.loss[0] == pytest.approx(2 * make_model()(input_ids=tokens, labels=tokens).loss.item(), rel=1e-5)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)


def test_a_loss_that_is_nan_is_not_hidden(tmp_path: Path) -> None:
    class Poisoned(InOrder):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            return loss * float("nan") if self.state.global_step == 1 else loss

    _, run = record(tmp_path, kind=Poisoned)
    assert np.isnan(run.loss).tolist() == [False, True, True]
    assert run.events[0].step == 1


def test_label_smoothing_with_accumulation_is_recorded_as_the_trainer_reports_it(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, label_smoothing_factor=0.1, gradient_accumulation_steps=2)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)


def test_evaluation_between_steps_is_not_counted(tmp_path: Path) -> None:
    data = {"eval_dataset": make_data(4)}
    trainer, run = record(tmp_path, more=data, eval_strategy="steps", eval_steps=1, eval_on_start=True)
    _, plain = record(tmp_path)
    assert logged(trainer, "eval_loss")
    for metric in run.metrics:
        np.testing.assert_array_equal(run.metric(metric), plain.metric(metric))
    assert run.loss.tolist() == plain.loss.tolist()


def test_clipping_shows_the_norm_before_and_after(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, max_grad_norm=0.1)
    before, after = run.metric("grad_norm"), run.metric("clipped_norm")
    total = np.sqrt(np.nansum(before**2, axis=1))
    assert total.tolist() == pytest.approx(logged(trainer, "grad_norm"), rel=1e-4)
    assert np.sqrt(np.nansum(after**2, axis=1)).tolist() == pytest.approx([0.1] * 3, rel=1e-3)
    blocks = block_norms_at_start()
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(blocks, rel=1e-5)


def block_norms_at_start() -> list[float]:
    twin = make_model()
    tokens = batch(0, 1)
    twin(input_ids=tokens, labels=tokens).loss.backward()
    return block_norms(twin)


def test_mixed_precision_is_recorded(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, bf16=True)
    assert of_blocks(run, "grad_norm", 0) == pytest.approx(block_norms_at_start(), rel=0.05)
    assert np.isfinite(of_blocks(run, "stream_grad", 0)).all()
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing")
def test_activation_checkpointing_is_counted_once(tmp_path: Path) -> None:
    _, run = record(tmp_path, gradient_checkpointing=True)
    _, plain = record(tmp_path)
    for metric in ("grad_norm", "stream_grad", "act_rms"):
        np.testing.assert_allclose(run.metric(metric), plain.metric(metric), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:gradtui")
def test_a_compiled_model_trains_and_the_run_says_what_cannot_be_seen(tmp_path: Path) -> None:
    trainer, run = record(tmp_path, torch_compile=True, torch_compile_backend="eager", max_grad_norm=1.0)
    assert run.steps.tolist() == [0, 1, 2]
    total = np.sqrt(np.nansum(run.metric("grad_norm") ** 2, axis=1))
    assert total.tolist() == pytest.approx(logged(trainer, "grad_norm"), rel=1e-4)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)
    seen = np.isfinite(of_blocks(run, "stream_grad", 1)).all()
    assert seen or "torch.compile" in run.facts["blind"][0]


def test_each_training_is_a_run_of_its_own(tmp_path: Path) -> None:
    callback = GradtuiCallback(run=tmp_path / "mine.gradtui", name="twice")
    trainer = make_trainer(tmp_path, callback)
    for number, stem in enumerate(("mine", "mine-2", "mine-3"), start=1):
        trainer.train()
        assert callback.path == tmp_path / f"{stem}.gradtui"
        run = open_run(callback.path)
        assert (run.status, run.facts["name"], run.steps.tolist()) == ("done", "twice", [0, 1, 2]), number


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("out of luck"), "failed", "RuntimeError: out of luck"),
        (KeyboardInterrupt(), "stopped", "interrupted"),
    ],
)
def test_an_error_in_training_passes_through_and_closes_the_run(
    tmp_path: Path, error: BaseException, status: str, reason: str
) -> None:
    class Fails(InOrder):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == 2:
                raise error
            return super().training_step(*args, **kwargs)

    callback = GradtuiCallback()
    trainer = make_trainer(tmp_path, callback, kind=Fails)
    with pytest.raises(type(error)) as caught:
        trainer.train()
    run = open_run(callback.path)
    assert caught.value is error
    assert (run.status, run.facts["reason"], run.steps.tolist()) == (status, reason, [0, 1])
    assert not any(module._forward_hooks for module in trainer.model.modules())
    assert "training_step" not in vars(trainer)


def test_an_error_outside_of_the_training_step_closes_the_run_too(tmp_path: Path) -> None:
    class Fails(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
            raise OSError("no space left")

    callback = GradtuiCallback()
    trainer = make_trainer(tmp_path, callback)
    trainer.add_callback(Fails())
    with pytest.raises(OSError, match="no space left"):
        trainer.train()
    run = open_run(callback.path)
    assert (run.status, run.facts["reason"]) == ("failed", "OSError: no space left")


def test_a_callback_added_later_hears_as_much(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, None)
    callback = GradtuiCallback()
    trainer.add_callback(callback)
    trainer.train()
    run = open_run(callback.path)
    assert run.loss.tolist() == pytest.approx(logged(trainer, "loss"), abs=1e-4)


def test_checkpoints_are_written_and_resumed_from_while_attached(tmp_path: Path) -> None:
    callback = GradtuiCallback()
    trainer = make_trainer(tmp_path, callback, save_strategy="steps", save_steps=2, max_steps=4)
    trainer.train()
    checkpoint = tmp_path / "output" / "checkpoint-2"
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == 2
    whole = open_run(callback.path)
    again = GradtuiCallback()
    resumed = make_trainer(tmp_path, again, model=make_model(seed=5), max_steps=4)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    rest = open_run(again.path)
    assert rest.status == "done"
    np.testing.assert_allclose(rest.metric("grad_norm"), whole.metric("grad_norm")[2:], rtol=1e-4)


def test_the_model_can_be_saved_and_pickled_while_attached(tmp_path: Path) -> None:
    class Saves(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **_kwargs: Any) -> None:
            model.save_pretrained(tmp_path / "saved")
            self.copy = pickle.loads(pickle.dumps(model))

    saves = Saves()
    record(tmp_path, max_steps=1, kind=lambda **k: _with(saves, **k))
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "saved")
    assert not any(module._forward_hooks for module in saves.copy.modules())
    for mine, theirs in zip(loaded.parameters(), saves.copy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def _with(more: Any, *, callbacks: list[Any], **options: Any) -> Any:
    return InOrder(callbacks=[*callbacks, more], **options)


def test_only_each_kth_step_and_the_chosen_metrics_are_recorded(tmp_path: Path) -> None:
    callback = GradtuiCallback(every=2, metrics=["grad_norm"], layers="transformer.h")
    trainer = make_trainer(tmp_path, callback)
    trainer.train()
    run = open_run(callback.path)
    losses = logged(trainer, "loss")
    assert (run.metrics, run.steps.tolist()) == (("grad_norm",), [0, 2])
    assert run.loss.tolist() == pytest.approx([losses[0], losses[2]], rel=1e-5)


def test_layers_that_do_not_exist_are_refused_when_training_begins(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, GradtuiCallback(layers="decoder.blocks"))
    with pytest.raises(ValueError, match=r"decoder\.blocks.*transformer\.h"):
        trainer.train()
