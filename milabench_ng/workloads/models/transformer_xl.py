"""Transformer-XL: a language model whose attention reaches back into the segments before its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WAVES = 10_000.0
"""The longest wave of a position's code is this many times 2 pi (Vaswani et al., arXiv:1706.03762)."""
DEVIATION = 0.02
"""Of the normal distribution that weights are drawn from."""


class RelativeAttention(nn.Module):
    """Attention by content and by distance (Dai et al., arXiv:1901.02860, section 3.3), without the shared biases."""

    def __init__(self, width: int, heads: int) -> None:
        """``width``: a multiple of ``heads``."""
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.places = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor, memory: Tensor, codes: Tensor, biases: Sequence[Tensor]) -> Tensor:
        """Hidden states [T, N, W] after a memory [M, N, W] to as many outputs.

        ``codes``: of the distances M + T - 1 to 0 [M + T, W]. ``biases``: what each head asks of content and of
        distance, whatever the word: twice [H, W / H].
        """
        length, count, width = hidden.shape
        shape = (-1, count, self.heads, width // self.heads)
        query, key, value = self.project(torch.cat((memory, hidden))).chunk(3, dim=2)
        query, key, value = query[-length:].reshape(shape), key.reshape(shape), value.reshape(shape)
        place = self.places(codes).view(-1, self.heads, width // self.heads)
        of_content, of_distance = (query + bias.to(query.dtype) for bias in biases)
        content = torch.einsum("inhd,jnhd->nhij", of_content, key)
        distance = shifted(torch.einsum("inhd,jhd->nhij", of_distance, place))
        scores = (content + distance) * (width // self.heads) ** -0.5
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(1 + len(memory))
        weights = scores.masked_fill(future, -math.inf).softmax(3)
        found = torch.einsum("nhij,jnhd->inhd", weights, value)
        return self.output(found.reshape(length, count, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and two linear layers, each added to its input and then normalised."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = RelativeAttention(width, heads)
        self.after_attention = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.forwards = nn.Sequential(
            nn.Linear(width, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, width), nn.Dropout(dropout)
        )
        self.after_forwards = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, memory: Tensor, codes: Tensor, biases: Sequence[Tensor]) -> Tensor:
        """As `RelativeAttention`."""
        hidden = self.after_attention(hidden + self.dropout(self.attention(hidden, memory, codes, biases)))
        return self.after_forwards(hidden + self.forwards(hidden))  # type: ignore[no-any-return]


class TransformerXL(nn.Module):
    """The model of Dai et al. (arXiv:1901.02860) with one softmax over all words, whose weights are the embedding's.

    With WikiText-103's 267,735 words: base (16 layers of 512, 8 heads, inner 2,048) has 191,948,759 parameters, large
    (18 of 1,024, 16 heads, inner 4,096) 519,963,095.
    """

    def __init__(self, vocabulary: int, *, layers: int, width: int, heads: int, inner: int, dropout: float) -> None:
        """``inner``: width between the two linear layers of a block."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.biases = nn.ParameterList(torch.empty(heads, width // heads) for _ in range(2))
        self.blocks = nn.ModuleList(Block(width, heads, inner, dropout) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary))
        for name, parameter in self.named_parameters():
            if "after" not in name and name != "output_bias":
                (nn.init.zeros_ if name.endswith("bias") else _draw)(parameter)

    def forward(self, tokens: Tensor, memory: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [T, N] after a memory [M, N, W] of each layer to logits [T, N, V], and what each layer was given.

        The latter are [T, N, W], without their history.
        """
        hidden = self.dropout(self.embedding(tokens) * self.embedding.embedding_dim**0.5)
        codes = self.dropout(sinusoids(len(memory[0]) + len(tokens), hidden))
        given = []
        for block, before in zip(self.blocks, memory, strict=True):
            given.append(hidden.detach())
            hidden = block(hidden, before, codes, list(self.biases))
        return F.linear(self.dropout(hidden), self.embedding.weight, self.output_bias), given

    def no_memory(self, count: int) -> list[Tensor]:
        """The memory of ``count`` texts before their first segment: [0, N, W] of each layer."""
        return [self.embedding.weight.new_empty(0, count, self.embedding.embedding_dim) for _ in self.blocks]


def remembered(memory: Sequence[Tensor], given: Sequence[Tensor], length: int) -> list[Tensor]:
    """The last ``length`` states of each layer: those ``given``, and what is left of its memory."""
    pairs = zip(memory, given, strict=True)
    return [
        torch.cat((old[max(0, len(old) + len(new) - length) :], new[max(0, len(new) - length) :])) for old, new in pairs
    ]


def shifted(scores: Tensor) -> Tensor:
    """Scores [..., T, K] by distance, K - 1 to 0, to scores by key: row i moves left by T - 1 - i (appendix B).

    What comes in from the right belongs to the future, and means nothing.
    """
    rows, columns = scores.shape[-2:]
    padded = F.pad(scores, (1, 0)).view(*scores.shape[:-2], columns + 1, rows)
    return padded[..., 1:, :].reshape(scores.shape)


def sinusoids(length: int, like: Tensor) -> Tensor:
    """Codes of the distances ``length - 1`` to 0 [length, W]: sines, then cosines, of W / 2 frequencies.

    ``like``: hidden states [..., W] of the same device and type.
    """
    width = like.shape[-1]
    frequencies = WAVES ** (-torch.arange(0, width, 2, device=like.device) / width)
    angles = torch.arange(length - 1, -1, -1, device=like.device)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1).to(like.dtype)


def next_word_loss(logits: Tensor, following: Tensor) -> Tensor:
    """Mean cross entropy between logits [T, N, V] and words [T, N], as fp32.

    Takes the logarithms in the type of the logits, outside of autocast, which would copy them into fp32: with 267,735
    words, the logits are most of the memory.
    """
    with torch.autocast(logits.device.type, enabled=False):
        logarithms = F.log_softmax(logits, dim=2)
    return -logarithms.gather(2, following.long().unsqueeze(2)).float().mean()


def _draw(parameter: Tensor) -> Tensor:
    return nn.init.normal_(parameter, 0.0, DEVIATION)
