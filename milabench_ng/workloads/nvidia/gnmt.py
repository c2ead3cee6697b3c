"""Machine translation with GNMT, as NVIDIA trains it."""

import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench, Count, Fraction, Rate, workload
from milabench_ng.datasets.text.bucketing import LengthClasses, collate
from milabench_ng.datasets.text.news_commentary import NewsCommentary
from milabench_ng.datasets.text.parallel_text import PAD
from milabench_ng.workloads.models.recurrent_translator import GNMT, smoothed

DRAWN = 0.1
"""Weights are uniform between this and its negative."""
FIRST_RATE = 0.01
"""The first step's part of the learning rate."""


@workload(
    unit="tokens",
    most_items="2 * batch_size * (longest + 1)",
    data=NewsCommentary,
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
)
def gnmt(
    bench: Bench,
    *,
    batch_size: Count = 128,
    hidden: Count = 1024,
    layers: Count = 4,
    dropout: Fraction = 0.2,
    longest: Count = 50,
    classes: Count = 5,
    smoothing: Fraction = 0.1,
    learning_rate: Rate = 2e-3,
    warm_up: Count = 200,
    clip_norm: Rate = 5.0,
) -> None:
    """Translate English into German with GNMT (Wu et al., arXiv:1609.08144): bound by the GPU.

    The network of `translator`, 159,605,817 parameters, with dropout before every LSTM layer and weights drawn from
    -0.1 to 0.1. Cross entropy with label smoothing; Adam in its fused form, whose learning rate rises; gradients
    clipped. Batches of sentences of one class of length, the longest first; in each step all devices have the same
    class. An item is one token that is not padding: of the source, or predicted of the target. Timed: the wait for the
    loader processes, copy, forward, backward, clipping, step.

    Options:
        batch_size: sentence pairs per step.
        hidden: width of embedding and layers.
        layers: LSTM layers in the encoder and in the decoder.
        dropout: probability, before all layers.
        longest: most sub-words of a sentence, including beginning and end; longer sentences are left out.
        classes: of length, from which batches are made; equally wide.
        smoothing: part of the probability that is spread evenly over all words.
        learning_rate: of Adam, after warming up.
        warm_up: steps in which the learning rate rises to it, by equal factors, from a hundredth.
        clip_norm: largest norm of the gradient.
    """
    pairs = bench.data()
    chosen = pairs.up_to(longest)
    longer = pairs.lengths[:, chosen].amax(0)
    turns = torch.Generator().manual_seed(bench.seed)
    batches = bench.loader(
        batch_size,
        samples=pairs,
        order=lambda generator: LengthClasses(chosen, (longer - 1) * classes // longest, batch_size, generator, turns),
        collate=collate_counted,
    )
    model = bench.place(drawn_uniformly(GNMT(pairs.vocabulary, hidden, layers, dropout, entering=dropout)))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: FIRST_RATE ** max(0.0, 1 - step / warm_up))
    forward = bench.spread(model)
    most = torch.full((longest, batch_size), PAD + 1, device=bench.device)
    bench.rehearse(lambda: smoothed(forward(most, [longest] * batch_size, most), most, smoothing))
    for source, target, lengths, _ in bench.measure(batches, count=lambda batch: batch[3]):
        logits = forward(source, lengths, target[:-1])
        bench.step(smoothed(logits, target[1:], smoothing), optimizer, clip_norm=clip_norm)
        schedule.step()


def collate_counted(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, list[int], int]:
    """As `collate`, with the number of source tokens and of target tokens that are predicted."""
    return *collate(pairs), sum(len(source) + len(target) - 1 for source, target in pairs)


def drawn_uniformly(model: GNMT) -> GNMT:
    """The model, its weights and biases drawn anew, all but the scale and the bias of the attention."""
    for name, parameter in model.named_parameters():
        if name not in ("decoder.attention.scale", "decoder.attention.bias"):
            nn.init.uniform_(parameter, -DRAWN, DRAWN)
    return model
