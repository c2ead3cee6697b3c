"""Generates tokens with a transformer whose keys and values lie in pages, which texts of any length share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.transformer import Block, Transformer, rotation

UNSEEN = -1e30
"""The score of a key that nobody may see: a number, so that pages without any seen key give no NaN."""


class View(NamedTuple):
    """Which keys each text sees, by page."""

    table: Tensor
    """The pages of each text [N, L]; 0 where there is none."""
    present: Tensor
    """Whether a text sees keys of each of these [N, L]."""
    owner: Tensor
    """The text of each page [P]."""
    unseen: Tensor
    """The places of each page whose key each token of its text may not see [P, T, page]."""


def most_probable(logits: Tensor) -> Tensor:
    """Tokens [N] by logits [N, V]."""
    return logits.argmax(1)


def drawn(logits: Tensor) -> Tensor:
    """Tokens [N] drawn by the probabilities of logits [N, V]: the first of as many exponential clocks that rings.

    As a multinomial draw, but in operations that a CUDA graph holds.
    """
    odds = logits.float().softmax(1)
    return odds.div_(torch.empty_like(odds).exponential_()).argmax(1)


class PagedGenerator(nn.Module):
    """A transformer, and pages of the keys and values of texts (arXiv:2309.06180).

    Page 0 belongs to nobody: what has no place is written there. Attention works on whole pages where they lie, each
    for its text, and puts the parts together by their weights (arXiv:2112.05682). So keys and values are read once and
    never gathered, and all shapes follow from the number of texts and pages: one CUDA graph holds a step.
    """

    def __init__(
        self,
        size: Dimensions,
        *,
        texts: int,
        pages: int,
        page: int,
        choose: Callable[[Tensor], Tensor] = most_probable,
    ) -> None:
        """``pages``: how many texts share, each for ``page`` tokens. ``choose``: next tokens [N] by logits [N, V]."""
        super().__init__()
        self._choose = choose
        self.model = Transformer(size)
        self.size, self.page = size, page
        shape = (size.layers, pages + 1, size.kv_heads, page, size.head_size)
        self.register_buffer("keys", torch.empty(shape))
        self.register_buffer("values", torch.empty(shape))
        self.register_buffer("tokens", torch.empty(texts, dtype=torch.int64))
        self.keys: Tensor
        """[layers, pages, kv heads, page, head size]"""
        self.values: Tensor
        self.tokens: Tensor
        """The last token of each text [N]."""

    def reset_parameters(self) -> None:
        """Draw the weights, and keys, values and tokens as if texts had been read: normal and uniform."""
        self.model.reset_parameters()
        self.keys.normal_()
        self.values.normal_()
        self.tokens.random_(self.size.vocabulary)

    def forward(self, table: Tensor, position: Tensor, reach: int) -> Tensor:
        """One step: the last token of each text [N] to the next one.

        ``table``: the pages of each text [N, L], 0 where there is none, all below ``reach``. ``position``: of these
        tokens [N]; a text at -1 keeps its token.
        """
        logits = self.model.logits(self.states(self.tokens[:, None], table, position, reach)[:, 0])
        self.tokens.copy_(torch.where(position < 0, self.tokens, self._choose(logits)))
        return self.tokens

    def states(self, tokens: Tensor, table: Tensor, position: Tensor, reach: int) -> Tensor:
        """The next tokens of each text [N, T] to normalised states [N, T, D]; their keys and values are kept.

        ``position``: of the first of them [N]; what a text at -1 is given is kept nowhere.
        """
        count, length = tokens.shape
        view = self._view(table, position, length, reach)
        at = position.clamp(min=0)[:, None] + torch.arange(length, device=position.device)
        pages = torch.where(position[:, None] < 0, 0, table.gather(1, at // self.page)).flatten()
        places = at.flatten() % self.page
        cosine, sine = rotation(at.flatten(), self.size.head_size, self.keys.dtype)
        turns = cosine.view(count, 1, length, -1), sine.view(count, 1, length, -1)
        hidden = self.model.embedding(tokens)
        for layer, block in enumerate(self.model.blocks):
            assert isinstance(block, Block)
            query, key, value = block.attention.project(block.before_attention(hidden), turns)
            self._write(layer, pages, places, *(part.transpose(1, 2).flatten(0, 1) for part in (key, value)))
            rows = query.reshape(count, self.size.kv_heads, -1, self.size.head_size)
            mixed = attend(rows, self.keys[layer, :reach], self.values[layer, :reach], view)
            hidden = block.onwards(hidden + block.attention.output(mixed.view_as(query).transpose(1, 2).flatten(2)))
        normalised: Tensor = self.model.norm(hidden)
        return normalised

    def read(self, tokens: Tensor, own: Tensor, start: int) -> Tensor:
        """Read a part of a prompt [L] that begins at ``start``; the most probable token after it [].

        ``own``: the pages of its text, up to the end of the part at least.
        """
        end = start + len(tokens)
        at = torch.arange(start, end, device=tokens.device)
        pages, own = own[at // self.page], own[: -(-end // self.page)]
        turns = rotation(at, self.size.head_size, self.keys.dtype)
        hidden = self.model.embedding(tokens)[None]
        for layer, block in enumerate(self.model.blocks):
            assert isinstance(block, Block)
            query, key, value = block.attention.project(block.before_attention(hidden), turns)
            self._write(layer, pages, at % self.page, key[0].transpose(0, 1), value[0].transpose(0, 1))
            keys, values = (self._together(kept[layer, own], end) for kept in (self.keys, self.values))
            mixed = F.scaled_dot_product_attention(query, keys, values, causal_lower_right(len(tokens), end))
            hidden = block.onwards(hidden + block.attention.output(mixed.transpose(1, 2).flatten(2)))
        return self.model.logits(self.model.norm(hidden[0, -1])).argmax()

    def _write(self, layer: int, pages: Tensor, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keep keys and values [L, kv heads, head size] of one token each at its place of a page."""
        self.keys[layer][pages, :, places] = keys
        self.values[layer][pages, :, places] = values

    def _together(self, pages: Tensor, end: int) -> Tensor:
        """The first ``end`` keys or values of a text's pages, for every head of a query [1, heads, end, head size]."""
        joined = pages.transpose(0, 1).flatten(1, 2)[:, :end]
        return joined.repeat_interleave(self.size.heads // self.size.kv_heads, 0)[None]

    def _view(self, table: Tensor, position: Tensor, length: int, reach: int) -> View:
        numbers = torch.arange(table.numel(), device=table.device).view_as(table)
        first = position[:, None] + 1 - numbers % table.shape[1] * self.page  # how many keys the first token sees
        owner, keys = torch.zeros(2, reach, dtype=torch.int64, device=table.device)
        owner.scatter_(0, table.flatten(), (numbers // table.shape[1]).flatten())
        keys.scatter_(0, table.flatten(), first.flatten())
        seen = keys[:, None] + torch.arange(length, device=table.device)
        unseen = torch.arange(self.page, device=table.device) >= seen[..., None]
        return View(table, first + length > 1, owner, unseen)


def attend(query: Tensor, keys: Tensor, values: Tensor, view: View) -> Tensor:
    """Attention of T tokens of each text [N, kv heads, group x T, size] to keys and values [P, kv heads, page, size].

    Weights and sums are in fp32.
    """
    scores = ((query * query.shape[-1] ** -0.5)[view.owner] @ keys.transpose(-1, -2)).float()
    scores.unflatten(2, (-1, view.unseen.shape[1])).masked_fill_(view.unseen[:, None, None], UNSEEN)
    most = scores.amax(-1)
    weights = (scores - most[..., None]).exp_()
    mixed = weights.to(values.dtype) @ values
    most = most[view.table].masked_fill_(~view.present[..., None, None], UNSEEN)
    share = (most - most.amax(1, keepdim=True)).exp_()
    total = (share * weights.sum(-1)[view.table]).sum(1)
    together: Tensor = (share[..., None] * mixed[view.table]).sum(1) / total[..., None]
    return together.to(query.dtype)


def paged_bytes(size: Dimensions, pages: int, page: int) -> int:
    """Bytes of all weights, and of the keys and values of ``pages``, in bf16."""
    return 2 * (size.parameters() + 2 * size.layers * (pages + 1) * page * size.kv_width)
