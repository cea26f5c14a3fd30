"""Blocks of every kind are measured right: each value equals plain autograd's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from probe.conftest import (
    POINTS,
    WIDTH,
    Block,
    Net,
    Train,
    batch,
    by_hand,
    check,
    norm,
    plain,
    seeded,
)


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
    # An input that the block changes in place is measured before that, at the module that made it.
    check(run, list(plain(seeded(Net), by_hand)))
    assert run.facts["blind"] == []
    assert [site.layer for site in run.sites] == [None, 0, 1, 2, None]


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


def test_a_mask_before_the_stream_is_not_taken_for_it(train: Train) -> None:
    class Masked(Block):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ones(3), x + self.branch(x)

    run = train(seeded(lambda: Net((Masked() for _ in range(3)), lambda block, x: block(x)[1])))
    plain = train(seeded(Net))
    np.testing.assert_array_equal(run.tables["stream_grad"], plain.tables["stream_grad"])


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        return torch.stack([head(x) for head in self.heads]).mean(0)


def test_an_expert_without_tokens_is_no_trouble(train: Train) -> None:
    class Idle(Heads):
        def forward(self, x: Tensor) -> Tensor:
            x = self.embedding(x)
            return self.heads[0](x) + self.heads[1](x[:0]).sum()

    run = train(seeded(Idle))
    assert not run.events
    assert np.isnan(run.value("act_rms", "heads.1"))
