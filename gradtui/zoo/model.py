"""The model: a causal byte-level transformer whose parts are picked by name.

Legend: B batch, T time, D width, V vocabulary (256 byte values); S = T + 1 bytes hold T predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradtui.presets import ModelConfig
from gradtui.runs.schema import Site
from gradtui.zoo import registry
from gradtui.zoo.registry import resolve

VOCABULARY = 256


class Embedding(nn.Module):
    """x_0 = token + learned position: (B, T) byte values to (B, T, D)."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        positions_TD = self.position.weight[: tokens_BT.shape[1]]
        return self.token(tokens_BT) + positions_TD  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One residual block, x_l to x_{l+1}: a mixer sublayer, then a feed-forward sublayer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        wire = resolve(registry.TOPOLOGIES[config.topology])
        norm = resolve(registry.NORMS[config.norm])
        mixer = resolve(registry.MIXERS[config.mixer])
        feedforward = resolve(registry.FEEDFORWARDS[config.feedforward])
        self.mixer = wire(mixer(config), norm(config.width, config.eps))
        self.feedforward = wire(feedforward(config), norm(config.width, config.eps))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.feedforward(self.mixer(x_BTD))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Embedding, `config.layers` layers, a final norm where the topology asks for one, an untied head.

    `seed` decides all weights; the global random state is neither used nor changed.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.config = config
        final_norm = registry.TOPOLOGIES[config.topology].final_norm and config.norm != "none"
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws a first init of its own, replaced below
            self.embedding = Embedding(config.context, config.width)
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
            self.final_norm: nn.Module | None = (
                resolve(registry.NORMS[config.norm])(config.width, config.eps) if final_norm else None
            )
            self.head = nn.Linear(config.width, VOCABULARY)
        resolve(registry.INITS[config.init])(self, config, torch.Generator().manual_seed(seed))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Next-byte logits (B, T, V) for int64 byte values (B, T); T is at most the context."""
        if tokens_BT.shape[1] > self.config.context:
            raise ValueError(f"{tokens_BT.shape[1]} tokens are more than the context of {self.config.context}")
        x_BTD = self.embedding(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        if self.final_norm is not None:
            x_BTD = self.final_norm(x_BTD)
        return self.head(x_BTD)  # type: ignore[no-any-return]

    def loss(self, tokens_BS: Tensor) -> Tensor:
        """Mean cross-entropy, in nats, of bytes 1…S-1 given the bytes before each; a scalar."""
        logits_BTV = self(tokens_BS[:, :-1])
        return cross_entropy(logits_BTV.flatten(0, 1), tokens_BS[:, 1:].flatten())

    def sites(self) -> list[tuple[Site, nn.Module]]:
        """The measured places, in forward order, each with the module whose output leaves it.

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
