"""Tacotron 2: from letters to mel spectrograms, one frame after the other."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SYMBOLS = 148
PAD = 0
"""The symbol after the end of a text."""
BANDS = 80
WIDTH = 512
"""Of symbols and of the memory that the attention reads."""
CELL = 1_024
"""Of the two recurrent layers of the decoder."""
PRENET = 256
KEYS = 128
PLACES, PLACE_WINDOW = 32, 31
"""Filters over earlier attention, and the symbols that each spans."""
KERNEL = 5
DROPOUT, CELL_DROPOUT = 0.5, 0.1
CERTAIN = 1e3
"""The logit of the end in frames after it."""


class State(NamedTuple):
    """What the decoder remembers of the frames so far."""

    asking: tuple[Tensor, Tensor]
    """Output and cell of the layer that asks the attention, each [N, 1024]."""
    drawing: tuple[Tensor, Tensor]
    """Those of the layer that draws the frame."""
    weights: Tensor
    """Attention of the last frame, [N, L]."""
    cumulative: Tensor
    """The sum of the attention of all frames."""
    context: Tensor
    """What the attention read last, [N, 512]."""


class Tacotron2(nn.Module):
    """Tacotron 2 with teacher forcing (Shen et al., arXiv:1712.05884); 28,193,153 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.convolutions = nn.Sequential(*(convolution(WIDTH, WIDTH, nn.ReLU()) for _ in range(3)))
        self.lstm = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.decoder = Decoder()
        self.postnet = nn.Sequential(
            convolution(BANDS, WIDTH, nn.Tanh()),
            *(convolution(WIDTH, WIDTH, nn.Tanh()) for _ in range(3)),
            convolution(WIDTH, BANDS, nn.Identity()),
        )

    def forward(self, letters: Tensor, counts: list[int], mels: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Letters [N, L], of which each row has ``counts``, descending, and mels [N, 80, T], of ``lengths`` [N].

        Returns spectrograms before and after the last convolutions, each [N, 80, T], 0 after their end, and the logits
        of being at the end [N, T].
        """
        words = self.convolutions(self.embedding(letters).transpose(1, 2)).transpose(1, 2)
        read, _ = self.lstm(pack_padded_sequence(words, torch.tensor(counts, device="cpu"), batch_first=True))
        memory, _ = pad_packed_sequence(read, batch_first=True, total_length=letters.shape[1])
        memory = memory.to(words.dtype)  # autocast runs an LSTM in fp16 only, and would convert bf16 at every frame
        drawn, ends = self.decoder(memory, letters == PAD, mels)
        refined = drawn + self.postnet(drawn)
        over = torch.arange(mels.shape[2], device=mels.device) >= lengths.unsqueeze(1)
        silent = over.unsqueeze(1)
        return drawn.masked_fill(silent, 0), refined.masked_fill(silent, 0), ends.masked_fill(over, CERTAIN)


class Decoder(nn.Module):
    """Draws a frame from the one before it and from what the attention reads in the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.ModuleList((nn.Linear(BANDS, PRENET, bias=False), nn.Linear(PRENET, PRENET, bias=False)))
        self.asking = nn.LSTMCell(PRENET + WIDTH, CELL)
        self.attention = LocationAttention()
        self.drawing = nn.LSTMCell(CELL + WIDTH, CELL)
        self.frame = nn.Linear(CELL + WIDTH, BANDS)
        self.end = nn.Linear(CELL + WIDTH, 1)

    def forward(self, memory: Tensor, padding: Tensor, mels: Tensor) -> tuple[Tensor, Tensor]:
        """Memory [N, L, 512], its padding [N, L] and mels [N, 80, T] to mels [N, 80, T] and logits of the end [N, T].

        A loop over the frames: each is drawn from the one before it in ``mels``.
        """
        before = F.pad(mels, (1, -1)).permute(2, 0, 1)
        for layer in self.prenet:
            before = F.dropout(layer(before).relu(), DROPOUT)  # always, also in inference (section 2.2)
        keys = self.attention.key(memory)
        state = beginning(memory)
        frames, ends = [], []
        for each in before:
            state = self.step(each, memory, keys, padding, state)
            found = torch.cat((state.drawing[0], state.context), 1)
            frames.append(self.frame(found))
            ends.append(self.end(found))
        return torch.stack(frames, 2), torch.cat(ends, 1)

    def step(self, before: Tensor, memory: Tensor, keys: Tensor, padding: Tensor, state: State) -> State:
        """One frame further; ``before``: the frame before it after the prenet, [N, 256]."""
        asked, asked_cell = self.asking(torch.cat((before, state.context), 1), state.asking)
        asked = F.dropout(asked, CELL_DROPOUT, self.training)
        places = torch.stack((state.weights, state.cumulative), 1)
        context, weights = self.attention(asked, memory, keys, padding, places)
        drawn, drawn_cell = self.drawing(torch.cat((asked, context), 1), state.drawing)
        drawn = F.dropout(drawn, CELL_DROPOUT, self.training)
        return State((asked, asked_cell), (drawn, drawn_cell), weights, state.cumulative + weights, context)


class LocationAttention(nn.Module):
    """Additive attention that sees where it looked before (Chorowski et al., arXiv:1506.07503)."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(CELL, KEYS, bias=False)
        self.key = nn.Linear(WIDTH, KEYS, bias=False)
        self.places = nn.Conv1d(2, PLACES, PLACE_WINDOW, padding=PLACE_WINDOW // 2, bias=False)
        self.place = nn.Linear(PLACES, KEYS, bias=False)
        self.energy = nn.Linear(KEYS, 1, bias=False)

    def forward(
        self, query: Tensor, memory: Tensor, keys: Tensor, padding: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What is read in the memory [N, 512], and the weights with which, [N, L].

        ``query`` [N, 1024]; ``keys`` [N, L, 128]; ``places`` [N, 2, L]: the last weights and the sum of all.
        """
        located = self.place(self.places(places).transpose(1, 2))
        energies = self.energy(torch.tanh(self.query(query).unsqueeze(1) + located + keys)).squeeze(2)
        weights = energies.masked_fill(padding, -torch.inf).softmax(1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


def convolution(before: int, after: int, activation: nn.Module) -> nn.Sequential:
    """A convolution over five places with batch normalisation and dropout."""
    return nn.Sequential(
        nn.Conv1d(before, after, KERNEL, padding=KERNEL // 2), nn.BatchNorm1d(after), activation, nn.Dropout(DROPOUT)
    )


def beginning(memory: Tensor) -> State:
    """Before the first frame: zeros."""
    count, length, width = memory.shape
    cell = memory.new_zeros(count, CELL)
    unread = memory.new_zeros(count, length)
    return State((cell, cell), (cell, cell), unread, unread, memory.new_zeros(count, width))
