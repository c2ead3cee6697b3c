"""Tacotron 2: the decoder against a loop over samples, frames and symbols, and batches by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from milabench_ng.workloads.models import tacotron
from milabench_ng.workloads.models.tacotron import PLACE_WINDOW, Decoder, LocationAttention, Tacotron2
from milabench_ng.workloads.nvidia.spoken import WRITTEN, Speaking


def test_parameters() -> None:
    with torch.device("meta"):
        assert sum(weight.numel() for weight in Tacotron2().parameters()) == 28_193_153


def lstm(cell: nn.LSTMCell, given: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """One step for one sample (Hochreiter & Schmidhuber, with the forget gate of Gers et al.)."""
    sums = cell.weight_ih @ given + cell.bias_ih + cell.weight_hh @ hidden + cell.bias_hh
    let_in, keep, new, let_out = sums.view(4, -1)
    memory = keep.sigmoid() * memory + let_in.sigmoid() * new.tanh()
    return let_out.sigmoid() * memory.tanh(), memory


def attended(attention: LocationAttention, query: Tensor, memory: Tensor, last: Tensor, all_: Tensor) -> Tensor:
    """The weights of the symbols [L] of one sample, one symbol after the other."""
    filters = attention.places.weight
    energies = []
    for at in range(len(memory)):
        located = torch.zeros(len(filters), dtype=memory.dtype)
        for offset in range(PLACE_WINDOW):
            seen = at + offset - PLACE_WINDOW // 2
            if 0 <= seen < len(memory):
                located = located + filters[:, 0, offset] * last[seen] + filters[:, 1, offset] * all_[seen]
        mixed = attention.query.weight @ query + attention.key.weight @ memory[at] + attention.place.weight @ located
        energies.append(attention.energy.weight[0] @ mixed.tanh())
    raised = torch.stack(energies).exp()
    return raised / raised.sum()


def drawn(decoder: Decoder, memory: Tensor, mels: Tensor) -> tuple[Tensor, Tensor]:
    """Frames [80, T] and logits of the end [T] of one sample without padding, from memory [L, 512], mels [80, T]."""
    asked = asked_cell = shown = shown_cell = torch.zeros(1024, dtype=memory.dtype)
    last = whole = torch.zeros(len(memory), dtype=memory.dtype)
    context = torch.zeros(512, dtype=memory.dtype)
    before = torch.zeros(80, dtype=memory.dtype)
    frames, ends = [], []
    for mel in mels.T:
        for layer in decoder.prenet:
            before = (layer.weight @ before).relu()
        asked, asked_cell = lstm(decoder.asking, torch.cat((before, context)), asked, asked_cell)
        last = attended(decoder.attention, asked, memory, last, whole)
        whole = whole + last
        context = last @ memory
        shown, shown_cell = lstm(decoder.drawing, torch.cat((asked, context)), shown, shown_cell)
        found = torch.cat((shown, context))
        frames.append(decoder.frame.weight @ found + decoder.frame.bias)
        ends.append(decoder.end.weight[0] @ found + decoder.end.bias[0])
        before = mel
    return torch.stack(frames, 1), torch.stack(ends)


def test_the_decoder_is_a_loop_over_samples_frames_and_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tacotron, "DROPOUT", 0.0)  # of the prenet, which has it in inference, too
    torch.manual_seed(0)
    decoder = Decoder().double().eval()
    nn.init.normal_(decoder.attention.energy.weight)  # so that the weights are far from even
    memory, mels = torch.randn(2, 20, 512).double(), torch.randn(2, 80, 5).double()
    padding = torch.arange(20) >= torch.tensor([[20], [17]])
    with torch.no_grad():
        frames, ends = decoder(memory, padding, mels)
        for sample, letters in enumerate((20, 17)):
            expected, end = drawn(decoder, memory[sample, :letters], mels[sample])
            assert torch.allclose(frames[sample], expected, atol=1e-9)
            assert torch.allclose(ends[sample], end, atol=1e-9)


def test_what_is_behind_the_end_of_a_sound_is_neither_heard_nor_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tacotron, "DROPOUT", 0.0)
    torch.manual_seed(0)
    model = Tacotron2().eval()
    letters = torch.tensor([[5, 6, 7, 8, 0], [9, 5, 0, 0, 0]])
    mels, lengths = torch.randn(2, 80, 4), torch.tensor([4, 2])
    with torch.no_grad():
        first, refined, ends = model(letters, [4, 2], mels, lengths)
        mels[1, :, 2:] = 9.0
        again, _, _ = model(letters, [4, 2], mels, lengths)
    assert torch.allclose(first, again, atol=1e-5)
    assert (first[1, :, 2:].count_nonzero(), refined[1, :, 2:].count_nonzero()) == (0, 0)
    assert ends[1, 2:].tolist() == [1000.0, 1000.0]
    assert ends[1, :2].abs().max() < 10


def test_a_batch_has_one_shape_and_the_longest_text_first() -> None:
    speaking = Speaking(letters=6, frames=8)
    sounds = [torch.zeros(256 * frames - 1, dtype=torch.int16) for frames in (3, 20)]
    texts = [torch.tensor(list(text.encode()), dtype=torch.uint8) for text in ("Né_!", "a long one")]
    batch = speaking.collate([speaking(*pair) for pair in zip(sounds, texts, strict=True)])
    assert [WRITTEN[number] for number in batch.letters[0]] == list("a long")
    assert batch.letters[1].tolist() == [WRITTEN.index("N"), WRITTEN.index("!"), 0, 0, 0, 0]  # é and _ are no symbols
    assert (batch.counts, batch.lengths.tolist(), batch.frames) == ([6, 2], [8, 3], 11)
    assert batch.mels.shape == (2, 80, 8)
    assert batch.mels[1, :, :3].unique().tolist() == pytest.approx([math.log(1e-5)])
    assert batch.mels[1, :, 3:].count_nonzero() == 0
    assert batch.ends.tolist() == [[0.0] * 7 + [1.0], [0.0] * 2 + [1.0] * 6]


def test_a_text_without_a_symbol_is_a_space() -> None:
    letters, _ = Speaking(letters=6, frames=8)(torch.zeros(1_000, dtype=torch.int16), torch.tensor([200, 95]))
    assert letters.tolist() == [WRITTEN.index(" ")]
