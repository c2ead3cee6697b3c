"""Mel spectrograms of speech, as Tacotron 2 and WaveGlow see it: 80 bands up to 8 kHz, 86 frames a second."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milabench_ng.datasets.audio.voice import SAMPLE_RATE

BANDS = 80
HIGHEST = 8_000.0  # hertz
WINDOW, HOP = 1_024, 256  # samples
FULL_SCALE = 32_768.0
QUIETEST = 1e-5
"""Smaller magnitudes are taken for this one, so that their logarithms are finite."""
BEND, BEND_MEL, RATIO = 1_000.0, 15.0, math.log(6.4) / 27
"""Of Slaney's scale: up to 1 kHz a mel is 66.7 Hz, above it is a ratio of e^RATIO."""


class MelSpectrogram:
    """Sound, int16 [samples], to the logarithms of its magnitudes in mel bands, float32 [80, samples // 256 + 1].

    Short-time Fourier transform with a Hann window of 1,024 samples every 256, the ends mirrored (Shen et al.,
    arXiv:1712.05884, section 2.1, with the sizes of NVIDIA's example).
    """

    def __init__(self) -> None:
        self.window = torch.hann_window(WINDOW)
        self.filters = mel_filters()

    def __call__(self, sound: Tensor) -> Tensor:
        """The spectrogram of a sound of more than 512 samples."""
        spectrum = torch.stft(sound / FULL_SCALE, WINDOW, HOP, window=self.window, return_complex=True)
        return (self.filters @ spectrum.abs()).clamp(min=QUIETEST).log()


def mel_filters() -> Tensor:
    """Triangles of equal area over the frequencies of the transform, float32 [80, 513].

    Slaney, "Auditory Toolbox", Interval Research 1998-010: each begins at the peak of the one before it and ends at
    that of the one after it.
    """
    edges = [hertz_of(mel_of(HIGHEST) * at / (BANDS + 1)) for at in range(BANDS + 2)]
    low, peak, high = (torch.tensor(edges[at : at + BANDS]).unsqueeze(1) for at in range(3))
    frequencies = torch.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    rising, falling = (frequencies - low) / (peak - low), (high - frequencies) / (high - peak)
    return rising.minimum(falling).clamp(min=0) * 2 / (high - low)


def mel_of(hertz: float) -> float:
    """Where a frequency is on Slaney's scale."""
    return hertz * BEND_MEL / BEND if hertz < BEND else BEND_MEL + math.log(hertz / BEND) / RATIO


def hertz_of(mel: float) -> float:
    """The frequency at a place on Slaney's scale."""
    return mel * BEND / BEND_MEL if mel < BEND_MEL else BEND * math.exp((mel - BEND_MEL) * RATIO)
