"""The model: a causal byte-level transformer whose parts are picked by name.

Legend: B batch, T time, D width, V vocabulary (256 byte values); S = T + 1 bytes hold T predictions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradtui.presets import ModelConfig
from gradtui.presets.parts import FEEDFORWARDS, INITS, MIXERS, NORMS, TOPOLOGIES, resolve
from gradtui.runs.schema import Site
from gradtui.zoo.embedding import VOCABULARY, Embedding
from gradtui.zoo.topologies.base import NormMaker, State, Sublayer, SublayerPosition


class Layer(nn.Module):
    """One residual block, x_l to x_{l+1}: a mixer sublayer, then a feed-forward sublayer."""

    def __init__(self, config: ModelConfig, index: int = 0) -> None:
        super().__init__()
        sublayer: type[Sublayer] = resolve(TOPOLOGIES[config.topology])
        norm = norm_maker(config)
        mixer = resolve(MIXERS[config.mixer_of(index)])
        feedforward = resolve(FEEDFORWARDS[config.feedforward_of(index)])
        first, second = 2 * index, 2 * index + 1
        self.mixer = sublayer(mixer(config), norm, SublayerPosition(first, "mixer", config))
        self.feedforward = sublayer(feedforward(config), norm, SublayerPosition(second, "feedforward", config))

    def forward(self, state: State) -> State:
        return self.feedforward(self.mixer(state))


def norm_maker(config: ModelConfig) -> NormMaker:
    """Makes the norms of a model, one a call."""
    return partial(resolve(NORMS[config.norm]), config.width, config.eps)


class Transformer(nn.Module):
    """Embedding, `config.layers` layers, a final norm where the topology asks for one, an untied head.

    `seed` decides all weights; the global random state is neither used nor changed.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.config = config
        topology = TOPOLOGIES[config.topology]
        sublayer: type[Sublayer] = resolve(topology)
        norm = norm_maker(config)
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws a first init of its own, replaced below
            self.embedding = (sublayer.Embedding or Embedding)(config)
            self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
            self.final_norm: nn.Module | None = None
            if topology.final_norm and config.norm != "none":
                self.final_norm = sublayer.FinalNorm(norm) if sublayer.FinalNorm else norm()
            self.head = (sublayer.Head or nn.Linear)(config.width, VOCABULARY)
        self._enter, self._leave = sublayer.enter, sublayer.leave
        resolve(INITS[config.init])(self, config, torch.Generator().manual_seed(seed))
        for module in self.modules():
            start = getattr(module, "start", None)
            if start is not None:
                start()
        self._acting: tuple[Any, ...] = tuple(
            m for m in self.modules() if m is not self and hasattr(m, "after_step")
        )

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Next-byte logits (B, T, V) for int64 byte values (B, T); T is at most the context."""
        if tokens_BT.shape[1] > self.config.context:
            raise ValueError(f"{tokens_BT.shape[1]} tokens are more than the context of {self.config.context}")
        state = self._enter(self.embedding(tokens_BT), self.config)
        for layer in self.layers:
            state = layer(state)
        x_BTD = self._leave(state)
        if self.final_norm is not None:
            x_BTD = self.final_norm(x_BTD)
        return self.head(x_BTD)  # type: ignore[no-any-return]

    def loss(self, tokens_BS: Tensor) -> Tensor:
        """Mean cross-entropy, in nats, of bytes 1…S-1 given the bytes before each; a scalar."""
        logits_BTV = self(tokens_BS[:, :-1])
        return cross_entropy(logits_BTV.flatten(0, 1), tokens_BS[:, 1:].flatten())

    def after_step(self) -> None:
        """Call `after_step` of every module that has one; to be called after each optimizer step."""
        for module in self._acting:
            module.after_step()

    def sites(self) -> list[tuple[Site, nn.Module]]:
        """The measured sites, in forward order, each with the module whose output leaves it.

        The modules' parameters partition the model's: a sublayer's norm belongs to its sublayer.
        """
        sites: list[tuple[Site, nn.Module]] = [
            (Site("embedding", layer=None, kind="embedding", stream=0), self.embedding)
        ]
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            mixer = Site(f"layers.{index}.mixer", layer=index, kind="mixer")
            feedforward = Site(f"layers.{index}.feedforward", layer=index, kind="feedforward", stream=index + 1)
            sites += [(mixer, layer.mixer), (feedforward, layer.feedforward)]
        if self.final_norm is not None:
            sites.append((Site("final_norm", layer=None, kind="norm"), self.final_norm))
        sites.append((Site("head", layer=None, kind="head"), self.head))
        return sites

    def readings(self) -> dict[str, dict[str, Tensor]]:
        """What modules report of themselves in their last training pass, by site: detached tensors by name."""
        found: dict[str, dict[str, Tensor]] = {}
        for site, measured in self.sites():
            for module in measured.modules():
                readings = getattr(module, "readings", None)
                if isinstance(readings, dict) and readings:
                    found.setdefault(site.name, {}).update(readings)
        return found
