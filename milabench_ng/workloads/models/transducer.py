"""HSTU: a recommender that attends to the history of a user (Zhai et al., arXiv:2402.17152)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

Slices = tuple[slice, slice]
"""Of rows, and of places in them."""
EPS = 1e-6
LATER = -1e4
"""The bias of events to come: SiLU and its slope are 0 there, also in bf16."""


class Histories:
    """Where the events of users lie, who come one after the other, the longest history first.

    Attention has them in rows of equal length, in blocks: the users whose history reaches block p are the first
    ``reaching[p]``. What no event fills is 0, which adds nothing to sums and gradients.
    """

    def __init__(self, lengths: Sequence[int], block: int, device: torch.device) -> None:
        """``lengths``: events of each user, in falling order. ``block``: events of a block."""
        self.block = block
        blocks = [-(-length // block) for length in lengths]
        self.reaching = [sum(own > p for own in blocks) for p in range(blocks[0])]
        self.length = blocks[0] * block
        """Of a row."""
        counts = torch.tensor(lengths, device=device)
        ends = counts.cumsum(0)
        self.last = ends - 1
        """The place of each user's last event."""
        self._user = torch.arange(len(lengths), device=device).repeat_interleave(counts)
        self._place = torch.arange(len(self._user), device=device) - (ends - counts)[self._user]

    def rows(self, events: Tensor, heads: int) -> Tensor:
        """Events [E, heads * size] to rows [users * heads, length, size]."""
        parts = events.view(len(events), heads, -1)
        made = events.new_zeros(len(self.last), heads, self.length, parts.shape[2])
        made[self._user, :, self._place] = parts
        return made.flatten(0, 1)

    def events(self, rows: Tensor) -> Tensor:
        """The reverse."""
        return rows.view(len(self.last), -1, *rows.shape[1:])[self._user, :, self._place].flatten(1)

    def blocks(self, heads: int) -> Iterator[tuple[Slices, Slices]]:
        """Which queries, and the keys that they see or that come later in their block, block by block."""
        for p, users in enumerate(self.reaching):
            end = (p + 1) * self.block
            own = slice(users * heads)
            yield (own, slice(end - self.block, end)), (own, slice(end))


class Transducer(nn.Module):
    """Embedded events, what users did, and whose events they are, to the logit of each user's last event."""

    def __init__(self, layers: int, width: int, heads: int, head_size: int, actions: int, length: int) -> None:
        """``actions``: kinds of what a user may have done. ``length``: that of the rows of the histories."""
        super().__init__()
        self.actions = nn.Embedding(actions, width)
        self.layers = nn.ModuleList(Layer(width, heads, head_size, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width, EPS)
        self.inner = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, embedded: Tensor, actions: Tensor, histories: Histories) -> Tensor:
        """Embeddings [E, D] and actions [E] of events to logits [users]; 0 before the first step."""
        states = embedded + self.actions(actions)
        for layer in self.layers:
            states = layer(states, histories)
        logits: Tensor = self.head(F.silu(self.inner(self.norm(states[histories.last])))).squeeze(1)
        return logits


class Layer(nn.Module):
    """Gates, values, queries and keys from one product; attention without softmax; its norm, gated; a shortcut."""

    def __init__(self, width: int, heads: int, head_size: int, length: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, head_size**-0.5
        self.before = nn.LayerNorm(width, EPS)
        self.mixed = nn.Linear(width, 4 * heads * head_size)
        self.distance = nn.Parameter(torch.zeros(length))
        """The bias of what happened so many events ago."""
        self.after = nn.LayerNorm(heads * head_size, EPS)
        self.output = nn.Linear(heads * head_size, width)

    def forward(self, states: Tensor, histories: Histories) -> Tensor:
        """States [E, D] to states [E, D]."""
        gate, value, query, key = F.silu(self.mixed(self.before(states))).chunk(4, dim=1)
        biases = by_distance(self.distance.float(), histories.block)
        seen: Tensor = Attention.apply(query * self.scale, key, value, biases, histories, self.heads)
        output: Tensor = states + self.output(self.after(seen / histories.length) * gate)
        return output


def by_distance(distance: Tensor, block: int) -> Tensor:
    """Biases [block, L] of the last block of queries in a row, by their distance [L] from each key.

    Those of any other block are its last columns.
    """
    falling = torch.cat((distance.flip(0), distance.new_full((block - 1,), LATER)))
    return falling.unfold(0, len(distance), 1).flip(0)


class Attention(Function):
    """Sums of values by SiLU(query * key + bias), where a softmax would be, over all events up to the query's own.

    A block of queries at a time, so that the weights of one exist at once; going back, they are computed again. What
    torch fuses (FlexAttention) divides by the sum of a softmax, which is not this. Each line is a kernel or two, which
    leaves nothing to compile.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, biases: Tensor, histories: Histories, heads: int
    ) -> Tensor:
        """Queries, keys and values [E, heads * size] to sums of the same shape."""
        ctx.histories, ctx.heads = histories, heads
        ctx.save_for_backward(query, key, value, biases)
        query, key, value = (histories.rows(part, heads) for part in (query, key, value))
        biases = biases.to(query.dtype)
        sums = torch.empty_like(query)
        for own, seen in histories.blocks(heads):
            scores = torch.baddbmm(biases[:, -seen[1].stop :], query[own], key[seen].mT)
            sums[own] = F.silu(scores, inplace=True) @ value[seen]
        return histories.events(sums)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the first four."""
        histories, heads = ctx.histories, ctx.heads
        *packed, biases = ctx.saved_tensors
        query, key, value, coming = (histories.rows(part, heads) for part in (*packed, *gradients))
        of_query, of_key, of_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        of_biases, biases = torch.zeros_like(biases), biases.to(query.dtype)
        for own, seen in histories.blocks(heads):
            columns = slice(-seen[1].stop, None)
            scores = torch.baddbmm(biases[:, columns], query[own], key[seen].mT)
            of_value[seen].baddbmm_(F.silu(scores).mT, coming[own])
            of_scores = torch.ops.aten.silu_backward(coming[own] @ value[seen].mT, scores)
            of_biases[:, columns] += of_scores.sum(0, dtype=of_biases.dtype)
            of_query[own] = of_scores @ key[seen]
            of_key[seen].baddbmm_(of_scores.mT, query[own])
        return *(histories.events(part) for part in (of_query, of_key, of_value)), of_biases, None, None


def last_event_loss(logits: Tensor, listened: Tensor) -> Tensor:
    """Binary cross entropy, in fp32, of whether each user ``listened`` to the last of the events, or skipped it."""
    return F.binary_cross_entropy_with_logits(logits.float(), listened.float())
