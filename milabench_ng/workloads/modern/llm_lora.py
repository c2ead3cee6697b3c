"""Fine-tuning of a large language model with adapters."""

import torch

from milabench_ng.bench import Bench, Count, Rate, workload
from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.workloads.models.adapters import AdaptedTransformer
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.modern.training import CHUNK, adamw, train
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import ADAPTERS, CAUSAL, FIRST_LOSS, WEIGHTS, flop_rates


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=Tokens128k,
    precision="bf16_master",
    bound="gpu-compute",
    auto_batch=True,
    derived=flop_rates(
        f"(4 * {WEIGHTS} + 6 * {CAUSAL} + 6 * {ADAPTERS})", f"(4 * {WEIGHTS} + 12 * {CAUSAL} + 6 * {ADAPTERS})"
    ),
    first_loss=FIRST_LOSS,
)
def llm_lora(
    bench: Bench,
    *,
    batch_size: Count = 2,
    length: Count = 4096,
    rank: Count = 16,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    vocabulary: Count = 128_256,
    learning_rate: Rate = 1e-4,
) -> None:
    """Fine-tune a frozen language model with low-rank adapters: bound by the GPU's arithmetic.

    The defaults have the shape of Llama 3.1 8B, with random weights, and 41,943,040 trained parameters: adapters on all
    seven linear layers of each block. Each block is computed again on the way back. AdamW with a constant rate. An
    item is one token. Timed: forward, backward, step; the text is on the device.

    Options:
        batch_size: texts per step.
        length: tokens of a text.
        rank: of the adapters.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        learning_rate: of AdamW.
    """
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=False,
    )
    with torch.device("meta"):
        model = AdaptedTransformer(size, rank, chunk=CHUNK, recompute=True)
    bench.place(model)
    optimizer = adamw(model.trained(), learning_rate)
    batches = windows(bench, batch_size, length, vocabulary)
    train(bench, model, optimizer, next(batches), batches)
