"""Blocks of every kind are measured right: each value equals plain autograd's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from probe.conftest import WIDTH, Block, Net, Recorded, Train, agree, batch, loss_of, norm, plain, seeded

POINTS = ("embedding", "layers.0", "layers.1", "layers.2")


def by_hand(model: nn.Module, step: int) -> tuple[list[Tensor], Tensor]:
    """The streams x_0 … x_3 of a `Net` whose blocks add a branch, computed without calling any block."""
    streams = [model.embedding(batch(step))]
    for block in model.layers:
        streams.append(streams[-1] + Block.branch(block, streams[-1]))  # type: ignore[arg-type]
    return streams, model.head(streams[-1]).square().mean()


def check(run: Recorded, expected: list[dict[str, list[float]]], points: tuple[str, ...] = POINTS) -> None:
    for row, values in enumerate(expected):
        for metric in ("act_rms", "stream_grad"):
            agree([run.value(metric, name, row) for name in points], values[metric])


class InPlaceOutput(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x).add_(x)


class InPlaceInput(Block):
    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x.clone())
        x += y
        return x


class Tuples(Block):
    def forward(self, x: Tensor) -> tuple[None, list[Tensor]]:
        return None, [x + self.branch(x)]


class Dicts(Block):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"mask": torch.ones(3, dtype=torch.bool), "hidden": x + self.branch(x)}


@dataclass
class Output:
    count: int
    hidden: Tensor


class Dataclasses(Block):
    def forward(self, x: Tensor) -> Output:
        return Output(3, x + self.branch(x))


class KeywordOnly(Block):
    def forward(self, *, mask: Tensor | None = None, hidden_states: Tensor) -> Tensor:
        return hidden_states + self.branch(hidden_states)


KINDS: dict[str, tuple[type[Block], Callable[[nn.Module, Tensor], Tensor]]] = {
    "plain": (Block, lambda block, x: block(x)),
    "in-place output": (InPlaceOutput, lambda block, x: block(x)),
    "in-place input": (InPlaceInput, lambda block, x: block(x)),
    "tuple": (Tuples, lambda block, x: block(x)[1][0]),
    "dict": (Dicts, lambda block, x: block(x)["hidden"]),
    "dataclass": (Dataclasses, lambda block, x: block(x).hidden),
    "keyword-only": (KeywordOnly, lambda block, x: block(hidden_states=x)),
    "checkpointed": (Block, lambda block, x: checkpoint(block, x, use_reentrant=False)),
    "checkpointed, reentrant": (Block, lambda block, x: checkpoint(block, x, use_reentrant=True)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_measured_whatever_it_takes_and_returns(kind: str, train: Train) -> None:
    block, call = KINDS[kind]
    run = train(seeded(lambda: Net((block() for _ in range(3)), call)))
    # An input that the block changes in place is heard as it came, at the module that made it.
    check(run, list(plain(seeded(Net), by_hand)))
    assert run.facts["blind"] == []
    assert [site.layer for site in run.sites] == [None, 0, 1, 2, None]


def test_gradients_weights_and_updates_equal_plain_autograd(train: Train) -> None:
    run = train(seeded(Net), steps=3)
    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    modules = dict(model.named_modules())
    for row in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, row)
        loss.backward()
        assert run.loss[row] == pytest.approx(loss.item(), rel=1e-6)
        before = {name: [p.detach().clone() for p in modules[name].parameters()] for name in run.names}
        grads = {name: norm(p.grad for p in modules[name].parameters()) for name in run.names}
        optimizer.step()
        for name in run.names:
            moved = [b - p.detach() for b, p in zip(before[name], modules[name].parameters(), strict=True)]
            assert run.value("grad_norm", name, row) == pytest.approx(grads[name], rel=1e-5)
            assert run.value("weight_norm", name, row) == pytest.approx(norm(before[name]), rel=1e-5)
            ratio = norm(moved) / norm(before[name])
            assert run.value("update_ratio", name, row) == pytest.approx(ratio, rel=1e-4)


class Recurrent(nn.Module):
    """One block, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block, self.head = nn.Linear(4, WIDTH), Block(), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for _ in range(3):
            x = self.block(x)
        return self.head(x)


def test_a_block_called_several_times_counts_all_its_calls(train: Train) -> None:
    run = train(seeded(Recurrent), steps=1, layers=lambda module: isinstance(module, Block))
    model = seeded(Recurrent)
    streams = [model.embedding(batch(0))]
    for _ in range(3):
        streams.append(streams[-1] + model.block.branch(streams[-1]))
    grads = torch.autograd.grad(model.head(streams[-1]).square().mean(), streams)
    rms = torch.cat(streams[1:]).square().mean().sqrt().item()
    assert run.value("act_rms", "block") == pytest.approx(rms, rel=1e-5)
    assert run.value("stream_grad", "block") == pytest.approx(norm(grads[1:]), rel=1e-5)


def test_tied_weights_are_one_row(train: Train) -> None:
    def make() -> nn.Module:
        model = Net()
        model.head = nn.Linear(WIDTH, WIDTH, bias=False)
        model.again = nn.Linear(WIDTH, WIDTH, bias=False)
        model.again.weight = model.head.weight
        model.head.register_forward_hook(lambda module, args, out: model.again(out))
        return model

    run = train(seeded(make), steps=1)
    model = seeded(make)
    loss_of(model, 0).backward()
    assert run.value("grad_norm", "head") == pytest.approx(norm([model.head.weight.grad]), rel=1e-5)
    assert np.isnan(run.value("grad_norm", "again"))
    assert run.value("act_rms", "again") > 0


def test_gradient_accumulation_counts_once_per_optimizer_step(train: Train, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from gradtui.probe.probe import Probe

    model = seeded(Net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Probe(model, optimizer, run=tmp_path / "acc.gradtui") as probe:
        for step in range(2):
            optimizer.zero_grad()
            for part in batch(step, 6).chunk(3):
                loss = model(part).square().mean()
                (loss / 3).backward()
                probe.log(loss=loss)
            optimizer.step()
    run = Recorded(tmp_path / "acc.gradtui")

    def whole(model: nn.Module, step: int) -> tuple[list[Tensor], Tensor]:
        streams = [model.embedding(batch(step, 6))]
        for block in model.layers:
            streams.append(block(streams[-1]))
        return streams, model.head(streams[-1]).square().mean()

    check(run, list(plain(seeded(Net), whole)))
    assert len(run.steps) == 2
    reference = seeded(Net)
    assert run.loss[0] == pytest.approx(reference(batch(0, 6)).square().mean().item(), rel=1e-5)


def test_evaluation_between_steps_is_not_counted(train: Train) -> None:
    model = seeded(Net)

    def loss(model: nn.Module, step: int) -> Tensor:
        with torch.no_grad():
            model(batch(99) * 50)
        model.eval()
        model(batch(98) * 50)  # somebody evaluates without no_grad
        with torch.inference_mode():
            model(batch(97) * 50)
        model.train()
        return loss_of(model, step)

    check(train(model, loss=loss), list(plain(seeded(Net), by_hand)))


def test_torchs_own_encoder_and_its_fast_path(train: Train) -> None:
    def make() -> nn.Module:
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def loss(model: nn.Module, step: int) -> Tensor:
        model.eval()
        with torch.no_grad():
            model(torch.randn(2, 3, WIDTH))
        model.train()
        return model(torch.ones(2, 3, WIDTH) * (step + 1)).square().mean()

    run = train(seeded(make), loss=loss)
    assert [s.name for s in run.sites if s.layer is not None] == ["layers.0", "layers.1", "layers.2"]

    def streams(model: nn.Module, step: int) -> tuple[list[Tensor], Tensor]:
        found = [torch.ones(2, 3, WIDTH) * (step + 1)]
        for block in model.layers:
            found.append(block(found[-1]))
        return found[1:], found[-1].square().mean()

    check(run, list(plain(seeded(make), streams)), ("layers.0", "layers.1", "layers.2"))
    assert run.facts["blind"] == []


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_the_input_of_a_checkpointed_stack_has_one_gradient(reentrant: bool | None, train: Train) -> None:
    def between(model: nn.Module, step: int) -> Tensor:
        x = model.embedding(batch(step)) * 1  # what enters the stack is not what a module returned
        for block in model.layers:
            x = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
        return model.head(x).square().mean()

    run = train(seeded(Net), loss=between)
    check(run, list(plain(seeded(Net), by_hand)), ("layers (input)", *POINTS[1:]))


def test_a_parameter_that_enters_the_stack_keeps_no_hook(train: Train) -> None:
    class Latents(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Parameter(torch.randn(2, WIDTH))
            self.layers = nn.ModuleList(Block() for _ in range(3))

        def forward(self, _x: Tensor) -> Tensor:
            x = self.latents
            for block in self.layers:
                x = block(x)
            return x

    model = seeded(Latents)
    run = train(model, steps=4, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    assert not model.latents._backward_hooks
    values = run.tables["stream_grad"][:, run.names.index("layers (input)")]
    assert values == pytest.approx([values[0]] * 4)
    assert values[0] == pytest.approx(run.value("grad_norm", "Latents"), rel=1e-5)
