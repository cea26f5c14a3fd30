"""What is measured in an unknown model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradtui.probe.discovery import LayersError
from gradtui.probe.probe import Probe
from probe.conftest import WIDTH, Block, Net, Train, batch, loss_of, norm, seeded


class Wrapped(nn.Module):
    """A model that is a part of another one."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.transformer = net

    def forward(self, x: Tensor) -> Tensor:
        return self.transformer(x)


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.ModuleList(Block() for _ in range(2))  # defined first, called last
        self.encoder = nn.ModuleList(Block() for _ in range(3))
        self.source, self.target = nn.Linear(4, WIDTH), nn.Linear(4, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.source(x)
        for block in self.encoder:
            memory = block(memory)
        y = self.target(x) + 1
        for block in self.decoder:
            y = block(y) + memory.mean()
        return y


class Mixture(nn.Module):
    """A block with more experts than the model has layers; they run side by side, not one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(9))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.stack([expert(x) for expert in self.experts]).mean(0)


class Stages(nn.Module):
    """Two stages of different width, each a list of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Sequential(*(Block(width) for _ in range(depth))), nn.Linear(width, width + 2))
            for width, depth in ((6, 2), (8, 4))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x


def layers(run: object) -> list[tuple[str, str]]:
    return [(s.name, s.stack) for s in run.sites if s.layer is not None]  # type: ignore[attr-defined]


def test_the_residual_blocks_are_found_wherever_they_are(train: Train) -> None:
    run = train(seeded(lambda: Wrapped(Net())), steps=1)
    assert run.names == [
        "transformer.embedding",
        *(f"transformer.layers.{i}" for i in range(3)),
        "transformer.head",
    ]
    assert [s.stream for s in run.sites] == [0, 1, 2, 3, None]
    assert [s.kind for s in run.sites] == ["module", "block", "block", "block", "module"]


def test_encoder_and_decoder_are_two_stacks_in_the_order_of_their_calls(train: Train) -> None:
    run = train(seeded(EncoderDecoder), steps=1)
    assert layers(run) == [
        *((f"encoder.{i}", "encoder") for i in range(3)),
        *((f"decoder.{i}", "decoder") for i in range(2)),
    ]
    assert [s.layer for s in run.sites if s.layer is not None] == list(range(5))
    streams = [(s.name, s.stream) for s in run.sites if s.stream is not None]
    assert streams == [
        ("source", 0),
        *((f"encoder.{i}", i + 1) for i in range(3)),
        ("decoder (input)", 4),
        *((f"decoder.{i}", i + 5) for i in range(2)),
    ]


def test_experts_are_no_stack(train: Train) -> None:
    run = train(seeded(lambda: Net([Mixture() for _ in range(3)])), steps=1)
    assert layers(run) == [(f"layers.{i}", "") for i in range(3)]


def test_blocks_in_stages_of_different_width_are_stacks_of_their_own(train: Train) -> None:
    run = train(seeded(Stages), steps=1)
    assert [stack for _, stack in layers(run)] == ["stages.0.0"] * 2 + ["stages.1.0"] * 4


def test_a_convolutional_model_is_measured_per_module(train: Train) -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 3)
        )

    def loss(model: nn.Module, step: int) -> Tensor:
        return model(torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(step))).square().mean()

    run = train(seeded(make), loss=loss)
    assert run.names == ["0", "2", "3", "5"]
    assert [s.layer for s in run.sites] == [0, 1, 2, 3]
    for metric in ("grad_norm", "act_rms", "stream_grad", "update_ratio"):
        assert (run.tables[metric] > 0).all()


def test_a_recurrent_model_is_measured_per_module(train: Train) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(9, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
            self.head = nn.Linear(WIDTH, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(self.embed(x))[0])

    run = train(seeded(Reader), loss=lambda m, s: m(torch.tensor([[1, 2, 3 + s]])).square().mean())
    assert run.names == ["embed", "lstm", "head"]
    assert (run.tables["stream_grad"] > 0).all()


@pytest.mark.parametrize(
    "choice",
    [
        "transformer.layers",
        ["transformer.layers.0", "transformer.layers.1", "transformer.layers.2"],
        lambda name, module: re.fullmatch(r"transformer\.layers\.\d+", name),
        lambda module: isinstance(module, Block),
    ],
    ids=["path", "list", "predicate of name and module", "predicate of module"],
)
def test_layers_can_be_named_in_any_of_these_ways(choice: object, train: Train) -> None:
    run = train(seeded(lambda: Wrapped(Net())), steps=1, layers=choice)
    assert [name for name, _ in layers(run)] == [f"transformer.layers.{i}" for i in range(3)]
    assert run.value("stream_grad", "transformer.layers.0") > 0


def test_layers_can_be_a_list_of_modules(train: Train) -> None:
    model = seeded(Net)
    run = train(model, steps=1, layers=[model.layers[0], model.layers[2]])
    assert layers(run) == [("layers.0", ""), ("layers.2", "")]
    assert {"layers.1.inner", "layers.1.out"} <= set(run.names)  # measured all the same, as modules


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("transformer.h", "there is no such module in Net; its lists of modules are: layers"),
        ([], "layers is empty"),
        ([nn.Linear(2, 2)], "a Linear in the list is not a module of this model"),
        (lambda module: False, "true of no module"),
    ],
)
def test_layers_that_name_nothing_are_refused_with_a_sentence(
    choice: object, sentence: str, tmp_path: Path
) -> None:
    model = seeded(Net)
    with pytest.raises(LayersError, match=re.escape(sentence)):
        Probe(model, run=tmp_path / "a.gradtui", layers=choice)  # type: ignore[arg-type]
    assert not any(m._forward_hooks for m in model.modules())


def test_a_model_whose_first_passes_are_evaluation_is_found_all_the_same(train: Train) -> None:
    def loss(model: nn.Module, step: int) -> Tensor:
        if step == 0:
            with torch.no_grad():
                model(batch(7))
        return loss_of(model, step)

    run = train(seeded(Net), loss=loss)
    assert [name for name, _ in layers(run)] == [f"layers.{i}" for i in range(3)]
    assert list(run.steps) == [0, 1]


def test_a_thousand_layers(train: Train) -> None:
    run = train(seeded(lambda: Net([nn.Identity() if i < 0 else Block(WIDTH) for i in range(1000)])), steps=2)
    assert len(layers(run)) == 1000
    assert (run.tables["grad_norm"] > 0).all()


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        return torch.stack([head(x) for head in self.heads]).mean(0)


def test_modules_side_by_side_are_no_layers(train: Train) -> None:
    run = train(seeded(Heads))
    assert {s.kind for s in run.sites} == {"module"}


def test_a_parametrised_module_is_one_site(train: Train) -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
        nn.utils.parametrizations.weight_norm(model[0])
        return model

    run = train(seeded(make))
    assert run.names == ["0", "2"]
    model = seeded(make)
    loss_of(model, 0).backward()
    assert run.value("grad_norm", "0") == pytest.approx(norm(p.grad for p in model[0].parameters()), rel=1e-5)
