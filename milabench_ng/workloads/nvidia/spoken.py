"""Batches of utterances for Tacotron 2: numbers of symbols, and spectrograms."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milabench_ng.workloads.models.tacotron import PAD
from milabench_ng.workloads.nvidia.mel import BANDS, HOP, MelSpectrogram

WRITTEN = "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The symbols of texts, by number; the first is that of the padding. The others of the 148 are phonemes."""
SILENT = WRITTEN.index(" ")


class Spoken(NamedTuple):
    """A batch of one shape, the longest texts first."""

    letters: Tensor
    """Numbers of symbols, int64 [N, L]."""
    counts: list[int]
    """Symbols of each text, for the host."""
    mels: Tensor
    """Float32 [N, 80, T]."""
    ends: Tensor
    """1 for the last frame and those after it, float32 [N, T]."""
    lengths: Tensor
    """Frames of each utterance, int64 [N]."""
    frames: int
    """Frames of all, without the padding."""


class Speaking:
    """Makes samples and batches, in which texts and spectrograms are cut or padded to one length each."""

    def __init__(self, letters: int, frames: int) -> None:
        """``letters``, ``frames``: of every text and spectrogram."""
        self.letters, self.frames = letters, frames
        self.spectrogram = MelSpectrogram()
        self.numbers = torch.zeros(256, dtype=torch.int64)
        for number, symbol in enumerate(WRITTEN):
            self.numbers[ord(symbol)] = number

    def __call__(self, sound: Tensor, letters: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of symbols [l] and a spectrogram [80, t]; letters that have no symbol are left out."""
        numbers = self.numbers[letters.long()]
        written = numbers[numbers != PAD][: self.letters]
        return written if len(written) else torch.tensor([SILENT]), self.spectrogram(sound[: self.frames * HOP - 1])

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> Spoken:
        samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
        letters = torch.full((len(samples), self.letters), PAD)
        mels = torch.zeros(len(samples), BANDS, self.frames)
        ends = torch.zeros(len(samples), self.frames)
        for row, (text, mel) in enumerate(samples):
            letters[row, : len(text)] = text
            mels[row, :, : mel.shape[1]] = mel
            ends[row, mel.shape[1] - 1 :] = 1
        lengths = [mel.shape[1] for _, mel in samples]
        return Spoken(letters, [len(text) for text, _ in samples], mels, ends, torch.tensor(lengths), sum(lengths))
