"""Draws sound that looks like speech in a spectrogram: harmonics below formants, hisses and pauses. Integers only."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
SAMPLE_RATE = 22_050  # hertz
SOUND = 1_764
"""Samples of one sound of a language: 80 ms."""
HARMONICS = 20
PHASES = 12
"""Bits of a phase: 4,096 points in a period of the wave."""
FINE = 16
"""More bits of a phase, so that pitches differ by less than a hertz."""
FORMANTS = ((300, 900), (900, 2500), (2300, 3300))
"""Where the first three resonances of a vocal tract lie, in hertz (Peterson and Barney, JASA 24(2), 1952)."""
BANDWIDTH = 120  # hertz, of a formant
VOICED, HISSED = 6, 8  # of ten sounds: voice, then hiss, then silence


def speech(rng: np.random.Generator, samples: int) -> npt.NDArray[np.int16]:
    """So many samples of invented speech: sounds of 80 ms, each voiced, hissed or silent."""
    sounds = -(-samples // SOUND)
    pitch = rng.integers(90, 251, sounds)
    kind = rng.integers(0, 10, sounds)
    loudness = np.where(kind < VOICED, rng.integers(40, 129, sounds), 0)
    hiss = np.where((kind >= VOICED) & (kind < HISSED), rng.integers(4, 17, sounds), 1)
    gains = _gains(rng, pitch) * loudness[:, None] >> 7
    steps = np.repeat((pitch << PHASES + FINE) // SAMPLE_RATE, SOUND)
    phase = np.cumsum(steps) >> FINE
    total = np.repeat(hiss, SOUND) * rng.integers(-128, 128, sounds * SOUND)
    for number in range(HARMONICS):
        wave = _sine()[number_of(phase, number)].reshape(sounds, SOUND)
        total += (wave * gains[:, number, None] >> 10).reshape(-1)
    return total[:samples].clip(-32_768, 32_767).astype(np.int16)


def number_of(phase: Integers, harmonic: int) -> Integers:
    """The point in its period at which a harmonic is, when the fundamental is at ``phase``."""
    points: Integers = phase * (harmonic + 1) & (1 << PHASES) - 1
    return points


def _gains(rng: np.random.Generator, pitch: Integers) -> Integers:
    """The amplitude of each harmonic of each sound, int64 [sounds, HARMONICS], up to a few thousand."""
    frequency = pitch[:, None] * np.arange(1, HARMONICS + 1)
    gains = np.zeros_like(frequency)
    for at, (low, high) in enumerate(FORMANTS):
        centre = rng.integers(low, high + 1, len(pitch))[:, None]
        gains += (3_000 >> at) * BANDWIDTH**2 // (BANDWIDTH**2 + (frequency - centre) ** 2)
    return gains


@functools.cache
def _sine() -> Integers:
    """One period of a wave between -1024 and 1024."""
    points = 1 << PHASES
    return np.asarray([round(1024 * math.sin(2 * math.pi * (at + 0.5) / points)) for at in range(points)])
