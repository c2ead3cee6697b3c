"""Generates tokens with a transformer: keys and values of the last tokens in rings, one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.transformer import Attention, Block, Transformer, rotation


class Generator(nn.Module):
    """A transformer, and for each text of a batch the keys and values of its last tokens.

    A token overwrites the oldest slot of the ring, so each step attends to as many keys: no mask, constant work. All
    that a step reads and writes lies at fixed places on the device, so that one CUDA graph holds it.
    """

    def __init__(self, size: Dimensions, batch: int, ring: int) -> None:
        super().__init__()
        self.model = Transformer(size)
        self.size, self.ring = size, ring
        self.register_buffer("keys", torch.empty(size.layers, batch, size.kv_heads, ring, size.head_size))
        self.register_buffer("values", torch.empty(size.layers, batch, size.kv_heads, ring, size.head_size))
        self.register_buffer("tokens", torch.empty(batch, dtype=torch.int64))
        self.register_buffer("position", torch.empty(1, dtype=torch.int64))
        self.keys: Tensor
        """[layers, N, kv heads, ring, head size]; slot i holds position i modulo the ring."""
        self.values: Tensor
        self.tokens: Tensor
        """The last token of each text [N]."""
        self.position: Tensor
        """That of these tokens [1]."""

    def reset_parameters(self) -> None:
        """Draw the weights, and rings as if texts of their length had been read: normal keys and values."""
        self.model.reset_parameters()
        self.keys.normal_()
        self.values.normal_()
        self.tokens.random_(self.size.vocabulary)
        self.position.fill_(self.ring)

    def forward(self) -> Tensor:
        """One step: the most probable next token of each text [N], which is the last token of the next step."""
        hidden = self.model.embedding(self.tokens)[:, None]
        turns = rotation(self.position, self.size.head_size, hidden.dtype)
        slot = self.position % self.ring
        for number, block in enumerate(self.model.blocks):
            assert isinstance(block, Block)
            normalised = block.before_attention(hidden)
            hidden = block.onwards(hidden + self._attend(block.attention, number, normalised, turns, slot))
        logits = self.model.logits(self.model.norm(hidden[:, 0]))
        self.tokens.copy_(self._most_probable(logits))
        self.position.add_(1)
        return self.tokens

    def _most_probable(self, logits: Tensor) -> Tensor:
        """The token of each text [N] by its logits [N, V]."""
        return logits.argmax(1)

    def _attend(
        self, attention: Attention, layer: int, hidden: Tensor, turns: tuple[Tensor, Tensor], slot: Tensor
    ) -> Tensor:
        """Attention of states [N, 1, D]: the queries that share a key are rows of one query."""
        query, key, value = attention.project(hidden, turns)
        keys, values = self.keys[layer], self.values[layer]
        keys.index_copy_(2, slot, key)
        values.index_copy_(2, slot, value)
        rows = query.reshape(len(query), self.size.kv_heads, -1, self.size.head_size)
        mixed = F.scaled_dot_product_attention(rows, keys, values)
        output: Tensor = attention.output(mixed.reshape(len(query), 1, -1))
        return output
