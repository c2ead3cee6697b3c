"""GNMT: a recurrent encoder and decoder over one shared embedding, with attention between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from milabench_ng.datasets.text.parallel_text import PAD

MASKED = -65504.0  # the lowest fp16 number


class Attention(nn.Module):
    """Additive attention (Bahdanau et al., arXiv:1409.0473), its score vector normalised (arXiv:1602.07868)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.direction = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))
        self.scale = nn.Parameter(torch.full((1,), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, queries: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Queries [T, N, W], memory [S, N, W] and its padding mask [N, S] to contexts [T, N, W]."""
        query = self.query(queries).transpose(0, 1).unsqueeze(2)
        key = self.key(memory).transpose(0, 1).unsqueeze(1)
        vector = self.direction * (self.scale / self.direction.norm())
        scores = torch.tanh(query + key + self.bias.to(query.dtype)) @ vector  # else autocast would double its memory
        weights = scores.masked_fill(padding.unsqueeze(1), MASKED).softmax(2)
        return torch.bmm(weights, memory.transpose(0, 1)).transpose(0, 1)


class Encoder(nn.Module):
    """A bidirectional LSTM layer, then unidirectional ones, the later ones with residual connections."""

    def __init__(self, width: int, layers: int, dropout: float, entering: float = 0.0) -> None:
        """``dropout``: probability between layers; ``entering``: for words."""
        super().__init__()
        self.first = nn.LSTM(width, width, bidirectional=True)
        self.others = nn.ModuleList(nn.LSTM(width * (2 if at == 0 else 1), width) for at in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.entering = nn.Dropout(entering)

    def forward(self, words: Tensor, lengths: list[int]) -> Tensor:
        """Embedded words [S, N, W], padded after their descending ``lengths``, to the memory [S, N, W]."""
        packed, _ = self.first(pack_padded_sequence(self.entering(words), lengths))
        outputs, _ = pad_packed_sequence(packed)
        for at, layer in enumerate(self.others):
            through, _ = layer(self.dropout(outputs))
            outputs = through if at == 0 else through + outputs
        return outputs


class Decoder(nn.Module):
    """An LSTM layer that queries the attention once, LSTM layers over its output and the context, the vocabulary."""

    def __init__(self, width: int, layers: int, dropout: float, entering: float, vocabulary: int) -> None:
        """``dropout``: probability between layers; ``entering``: for words and contexts."""
        super().__init__()
        self.first = nn.LSTM(width, width)
        self.attention = Attention(width)
        self.others = nn.ModuleList(nn.LSTM(2 * width, width) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.entering = nn.Dropout(entering)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, words: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Embedded words [T, N, W] to logits [T, N, V]."""
        outputs, _ = self.first(self.entering(words))
        context = self.attention(outputs, memory, padding)
        for at, layer in enumerate(self.others):
            through, _ = layer(torch.cat((self.dropout(outputs), self.entering(context)), dim=2))
            outputs = through if at == 0 else through + outputs
        return self.output(outputs)  # type: ignore[no-any-return]


class GNMT(nn.Module):
    """Encoder and decoder over one shared embedding (Wu et al., arXiv:1609.08144), weights as PyTorch draws them."""

    def __init__(
        self, vocabulary: int, width: int = 1024, layers: int = 4, dropout: float = 0.2, entering: float = 0.0
    ) -> None:
        """``dropout``: probability between LSTM layers; ``entering``: for words and contexts on their way into one."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.encoder = Encoder(width, layers, dropout, entering)
        self.decoder = Decoder(width, layers, dropout, entering, vocabulary)

    def forward(self, source: Tensor, lengths: list[int], target: Tensor) -> Tensor:
        """Sentences [S, N] of descending ``lengths`` and translations [T, N] to logits [T, N, V] of the next words."""
        memory = self.encoder(self.embedding(source), lengths)
        return self.decoder(self.embedding(target), memory, (source == PAD).t())  # type: ignore[no-any-return]


def smoothed(logits: Tensor, following: Tensor, smoothing: float) -> Tensor:
    """Cross entropy with label smoothing (arXiv:1512.00567), summed over all words except padding, per sentence.

    In fp32: the sum over a batch leaves the range of fp16.
    """
    total = F.cross_entropy(
        logits.flatten(0, 1).float(), following.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
    return total / following.shape[1]
