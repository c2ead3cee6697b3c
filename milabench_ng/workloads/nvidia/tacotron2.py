"""Tacotron 2 as NVIDIA's example trains it."""

from typing import Annotated

import torch
from msgspec import Meta
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Derived, FromZero, workload
from milabench_ng.datasets.audio.even_batches import EvenBatches
from milabench_ng.datasets.audio.ljspeech import LJSpeech
from milabench_ng.workloads.models.tacotron import Tacotron2
from milabench_ng.workloads.nvidia.spoken import Speaking


@workload(
    unit="mel frames",
    most_items="batch_size * frames",
    data=LJSpeech,
    distributed="if several",
    bound="launch",
    auto_batch=True,
    derived=(Derived("x real time", "rate * 256 / 22050"),),
)
def tacotron2(
    bench: Bench,
    *,
    batch_size: Count = 48,
    frames: Annotated[int, Meta(ge=3)] = 870,
    letters: Count = 187,
    learning_rate: FromZero = 0.0,
) -> None:
    """Train Tacotron 2 on LJ Speech (Shen et al., arXiv:1712.05884): bound by kernel launches.

    NVIDIA's example in Lambda's benchmark: 28,193,153 parameters, random weights; squared errors of the spectrograms,
    cross entropy of their end; Adam, gradients clipped to 1. Teacher forcing in a loop over the frames, so a step is
    thousands of small kernels. Loader processes compute the spectrograms.

    There a batch is as long as its longest utterance. Of 48 utterances or more, one is nearly always as long as the
    longest of all. So here all batches are: every step has the same number of frames to draw, padding included. Each
    batch has short and long utterances in the same shares, so that all tenants count the same.

    An item is one frame of a spectrogram, without padding. Timed: the wait for the loader processes, copy, forward,
    backward, step. (The published figures leave out the wait.)

    Options:
        batch_size: utterances per step.
        frames: of a spectrogram, of 11.6 ms; longer ones are cut, shorter ones padded. LJ Speech has up to 870.
        letters: symbols of a text; longer ones are cut, shorter ones padded. LJ Speech has up to 187.
        learning_rate: of Adam; 0, as there, leaves the weights as they are, at the same cost.
    """
    speaking = Speaking(letters, frames)
    utterances = bench.data(transform=speaking)
    model = bench.place(Tacotron2())
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=1e-6, fused=True)
    forward = bench.spread(model)
    order = EvenBatches(utterances.lengths, batch_size)
    batches = bench.loader(batch_size, samples=utterances, order=order, collate=speaking.collate)
    for spoken in bench.measure(batches, count=lambda spoken: spoken.frames):
        drawn, refined, ends = forward(spoken.letters, spoken.counts, spoken.mels, spoken.lengths)
        errors = F.mse_loss(drawn, spoken.mels) + F.mse_loss(refined, spoken.mels)
        bench.step(errors + F.binary_cross_entropy_with_logits(ends, spoken.ends), optimizer, clip_norm=1.0)
