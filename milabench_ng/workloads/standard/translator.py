"""Machine translation with recurrent networks and attention."""

import torch

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.text.bucketing import Buckets, collate
from milabench_ng.datasets.text.parallel_text import PAD
from milabench_ng.datasets.text.wmt16 import Wmt16
from milabench_ng.workloads.models.recurrent_translator import GNMT, smoothed


@workload(
    unit="sentence pairs",
    data=Wmt16,
    bound="gpu-compute",
    ram_gib=1.5,
    legacy_2020=(
        Legacy2020(
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
    bench.rehearse(lambda: smoothed(model(most, [longest] * batch_size, most), most, smoothing))
    for source, target, source_lengths in bench.measure(batches, count=batch_size):
        logits = model(source, source_lengths, target[:-1])
        bench.step(smoothed(logits, target[1:], smoothing), optimizer, clip_norm=clip_norm)
