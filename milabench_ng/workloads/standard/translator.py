"""Machine translation with recurrent networks and attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from milabench_ng.bench import Bench, Classic, workload
from milabench_ng.datasets.text.bucketing import Buckets, collate
from milabench_ng.datasets.text.wmt16 import PAD, Wmt16

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
        scores = torch.tanh(query + key + self.bias) @ vector
        weights = scores.masked_fill(padding.unsqueeze(1), MASKED).softmax(2)
        return torch.bmm(weights, memory.transpose(0, 1)).transpose(0, 1)


class Encoder(nn.Module):
    """A bidirectional LSTM layer, then unidirectional ones, the later ones with residual connections."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.LSTM(width, width, bidirectional=True)
        self.others = nn.ModuleList(nn.LSTM(width * (2 if at == 0 else 1), width) for at in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor, lengths: list[int]) -> Tensor:
        """Embedded words [S, N, W], padded after their descending ``lengths``, to the memory [S, N, W]."""
        packed, _ = self.first(pack_padded_sequence(words, lengths))
        outputs, _ = pad_packed_sequence(packed)
        for at, layer in enumerate(self.others):
            through, _ = layer(self.dropout(outputs))
            outputs = through if at == 0 else through + outputs
        return outputs


class Decoder(nn.Module):
    """An LSTM layer that queries the attention once, LSTM layers over its output and the context, the vocabulary."""

    def __init__(self, width: int, layers: int, dropout: float, vocabulary: int) -> None:
        super().__init__()
        self.first = nn.LSTM(width, width)
        self.attention = Attention(width)
        self.others = nn.ModuleList(nn.LSTM(2 * width, width) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, words: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Embedded words [T, N, W] to logits [T, N, V]."""
        outputs, _ = self.first(words)
        context = self.attention(outputs, memory, padding)
        for at, layer in enumerate(self.others):
            through, _ = layer(torch.cat((self.dropout(outputs), context), dim=2))
            outputs = through if at == 0 else through + outputs
        return self.output(outputs)  # type: ignore[no-any-return]


class GNMT(nn.Module):
    """Encoder and decoder over one shared embedding; weights as PyTorch draws them, as in 2020."""

    def __init__(self, vocabulary: int, width: int = 1024, layers: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.encoder = Encoder(width, layers, dropout)
        self.decoder = Decoder(width, layers, dropout, vocabulary)

    def forward(self, source: Tensor, lengths: list[int], target: Tensor) -> Tensor:
        """Sentences [S, N] of descending ``lengths`` and translations [T, N] to logits [T, N, V] of the next words."""
        memory = self.encoder(self.embedding(source), lengths)
        return self.decoder(self.embedding(target), memory, (source == PAD).t())  # type: ignore[no-any-return]


def smoothed(logits: Tensor, following: Tensor, smoothing: float) -> Tensor:
    """Cross entropy with label smoothing (arXiv:1512.00567), summed over all words except padding, per sentence."""
    total = F.cross_entropy(
        logits.flatten(0, 1), following.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
    return total / following.shape[1]


@workload(
    unit="sentence pairs",
    data=Wmt16,
    bound="gpu-compute",
    ram_gib=1.5,
    classic=(
        Classic(
            experiment="milarun.models.rnn_translator:main",
            options={"max_length_train": "longest", "grad_clip": "clip_norm"},
            ignored=("target_bleu",),
        ),
    ),
)
def translator(
    bench: Bench,
    *,
    batch_size: int = 64,
    hidden: int = 1024,
    layers: int = 4,
    dropout: float = 0.2,
    longest: int = 50,
    smoothing: float = 0.1,
    learning_rate: float = 5e-4,
    clip_norm: float = 5.0,
) -> None:
    """Translate English into German with GNMT (Wu et al., arXiv:1609.08144; MLPerf v0.5): bound by the GPU.

    Four LSTM layers each in encoder (the first in both directions) and decoder, one embedding for both, additive
    attention with a normalised score; cross entropy with label smoothing; Adam, gradients clipped. Batches of sentences
    of similar length, the longest first. An item is one sentence pair. Timed: the wait for the loader processes, copy,
    forward, backward, clipping, step. (2020 did not time the wait.)

    Options:
        batch_size: sentence pairs per step.
        hidden: width of embedding and layers.
        layers: LSTM layers in the encoder and in the decoder.
        dropout: probability, before all layers but the first of the encoder and of the decoder.
        longest: most sub-words of a sentence, including beginning and end; longer sentences are left out.
        smoothing: part of the probability that is spread evenly over all words.
        learning_rate: of Adam.
        clip_norm: largest norm of the gradient.
    """
    pairs = bench.data()
    chosen = pairs.up_to(longest)
    lengths = pairs.lengths[:, chosen].sum(0)
    batches = bench.loader(
        batch_size,
        samples=pairs,
        order=lambda generator: Buckets(chosen, lengths, batch_size, generator),
        collate=collate,
    )
    model = bench.place(GNMT(pairs.vocabulary, hidden, layers, dropout))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    most = torch.full((longest, batch_size), PAD + 1, device=bench.device)
    torch.autograd.backward(smoothed(model(most, [longest] * batch_size, most), most, smoothing))  # reserves memory
    for source, target, source_lengths in bench.measure(batches, count=batch_size):
        logits = model(source, source_lengths, target[:-1])
        bench.step(smoothed(logits, target[1:], smoothing), optimizer, clip_norm=clip_norm)
