"""Language modelling with Transformer-XL."""

from typing import Literal

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, Fraction, FromZero, Rate, WholeNumber, workload
from milabench_ng.datasets.text.wikitext_103 import WikiText103
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.transformer_xl import TransformerXL, next_word_loss, remembered
from milabench_ng.workloads.nvidia.lamb import Lamb


def check_width(*, width: int, heads: int) -> None:
    """Raise InputError unless all heads are of one width, and each frequency has a sine and a cosine."""
    if width % heads or width % 2:
        raise InputError(f"--width {width}: it must be a multiple of --heads ({heads}) and of 2")


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=WikiText103,
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    derived=(Derived("segments/s", "rate / length"), Derived("ms/step", "1000 * batch_size * length / rate")),
    fits=check_width,
)
def txl(
    bench: Bench,
    *,
    batch_size: Count = 8,
    layers: Count = 16,
    width: Count = 512,
    heads: Count = 8,
    inner: Count = 2048,
    dropout: Fraction = 0.1,
    length: Count = 192,
    memory: WholeNumber = 192,
    optimizer: Literal["lamb", "adam"] = "lamb",
    learning_rate: FromZero = 0.0,
    clip_norm: Rate = 0.25,
) -> None:
    """Predict the next word of WikiText-103 with Transformer-XL (Dai et al., arXiv:1901.02860): bound by the GPU.

    The defaults are the base model, 192 million parameters; profiles give the sizes of the large one. One softmax over
    all 267,735 words, whose weights are the embedding's, sets the pace and needs most of the memory. Each column of the
    batch is a stretch of the text, and attention reaches into the segment before, which the model remembers.

    An item is one token that is predicted. Timed: forward, backward, clipping, step; the text is on the device.

    As published, the learning rate is 0: the optimizer works, and leaves the weights as they are. There, fp16 meant
    fp16 weights with fp32 masters (apex O2): that is the precision half_master here, and amp is autocast. Logits and
    their logarithms are in fp16 in both.

    Options:
        batch_size: columns of the text.
        layers: blocks of attention and linear layers.
        width: of the embedding and of all layers, a multiple of heads and of 2.
        heads: of the attention.
        inner: width between the two linear layers of a block.
        dropout: probability, for all but the attention's weights.
        length: tokens of a column per step.
        memory: states that a layer remembers.
        optimizer: lamb (base) or adam (large).
        learning_rate: of the optimizer; 0 leaves the weights as they are.
        clip_norm: largest norm of the gradient.
    """
    text = bench.data()
    columns = rolled(text.columns(batch_size)).to(bench.device, torch.int32)
    windows = list(zip(torch.split(columns[:-1], length), torch.split(columns[1:], length), strict=True))
    sizes = {"layers": layers, "width": width, "heads": heads, "inner": inner}
    model = bench.place(TransformerXL(text.vocabulary, **sizes, dropout=dropout))
    match optimizer:
        case "lamb":
            chosen: torch.optim.Optimizer = Lamb(model.parameters(), lr=learning_rate)
        case "adam":
            chosen = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    forward = bench.spread(model)
    states = model.no_memory(batch_size)
    for tokens, following in bench.measure(windows, count=lambda window: window[1].numel()):
        logits, given = forward(tokens, states)
        states = remembered(states, given, memory)
        bench.step(next_word_loss(logits, following), chosen, clip_norm=clip_norm)


def rolled(columns: Tensor) -> Tensor:
    """Columns [length, N], each beginning at a random place of its own and going on from its start."""
    starts = torch.randint(len(columns), (columns.shape[1],))
    turned = [column.roll(-int(start)) for column, start in zip(columns.t(), starts, strict=True)]
    return torch.stack(turned, dim=1)
