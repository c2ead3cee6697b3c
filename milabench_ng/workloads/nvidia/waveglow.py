"""WaveGlow as NVIDIA's example trains it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Derived, FromZero, workload
from milabench_ng.datasets.audio.ljspeech import LJSpeech
from milabench_ng.workloads.models.wave_glow import WaveGlow, unlikelihood
from milabench_ng.workloads.nvidia.mel import FULL_SCALE, MelSpectrogram

SEGMENT = 8_000  # samples
LARGEST = 65_504.0
"""The norm to which gradients are clipped, as in the example: the largest number of fp16."""


class Segment:
    """A part of an utterance, at a random place, and its spectrogram; what is missing at the end is silence."""

    def __init__(self) -> None:
        self.spectrogram = MelSpectrogram()

    def __call__(self, sound: Tensor, _letters: Tensor) -> tuple[Tensor, Tensor]:
        """Sound, int16 [samples], to 8,000 samples from -1 to 1 and their spectrogram, float32 [80, 32]."""
        start = int(torch.randint(max(1, len(sound) - SEGMENT + 1), ()))
        part = sound[start : start + SEGMENT]
        part = F.pad(part, (0, SEGMENT - len(part)))
        return part / FULL_SCALE, self.spectrogram(part)


@workload(
    unit="audio samples",
    most_items=f"{SEGMENT} * batch_size",
    data=LJSpeech,
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    derived=(
        Derived("segments/s", "rate / 8000"),
        Derived("x real time", "rate / 22050"),
        Derived("ms/step", "8e6 * batch_size / rate"),
    ),
)
def waveglow(bench: Bench, *, batch_size: Count = 8, learning_rate: FromZero = 0.0) -> None:
    """Train WaveGlow on LJ Speech (Prenger et al., arXiv:1811.00002): bound by the GPU.

    NVIDIA's example in Lambda's benchmark: 12 flows, random weights; Adam, gradients clipped to 65,504, cuDNN's
    autotuner on but in fp32. Loader processes cut segments of 8,000 samples out of the utterances and compute their
    spectrograms, so that all batches have one shape.

    An item is one sample of audio. Timed: the wait for the loader processes, copy, forward, backward, step. (The
    published figures leave out the wait.)

    Options:
        batch_size: segments per step.
        learning_rate: of Adam; 0, as there, leaves the weights as they are, at the same cost.
    """
    bench.autotune()
    model = bench.place(WaveGlow())
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    forward = bench.spread(model)
    batches = bench.loader(batch_size, transform=Segment())
    for audio, mels in bench.measure(batches, count=SEGMENT * batch_size):
        noise, logarithm = forward(audio, mels)
        bench.step(unlikelihood(noise, logarithm), optimizer, clip_norm=LARGEST)
