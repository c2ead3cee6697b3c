"""Pretraining of a large language model, sharded over all devices."""

from collections.abc import Collection

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from milabench_ng.bench import Bench, Count, Rate, workload
from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import format_bytes
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.shared_attention import SharedAttention
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.training import CHUNK, Texts, adamw, train
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import CAUSAL, FIRST_LOSS, WEIGHTS, flop_rates


def divisible_texts(*, share_texts: bool, length: int, kv_heads: int, devices: int) -> None:
    """Raise InputError unless each device can have as much of a text, and while it attends as many heads."""
    if share_texts and (length % devices or kv_heads % devices):
        raise InputError(
            f"--share-texts: --length {length} and --kv-heads {kv_heads} must be multiples of the number of devices "
            f"({devices})"
        )


@workload(
    unit="tokens",
    most_items="batch_size * length / (1 + share_texts * (devices - 1))",
    data=Tokens128k,
    precision="bf16_master",
    distributed=True,
    bound="gpu-compute",
    derived=flop_rates(f"6 * ({WEIGHTS} + {CAUSAL})", f"6 * ({WEIGHTS} + 2 * {CAUSAL})"),
    first_loss=FIRST_LOSS,
    fits=divisible_texts,
    formerly={"share_texts": False},
)
def llm_fsdp(
    bench: Bench,
    *,
    batch_size: Count = 1,
    length: Count = 8192,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    vocabulary: Count = 128_256,
    tied: bool = False,
    share_texts: bool = False,
    learning_rate: Rate = 3e-4,
) -> None:
    """Train one language model on all devices (FSDP2): bound by their arithmetic, or by slow links.

    The defaults have the shape of Llama 3.1 8B: 8,030,261,248 parameters. Each block is sharded, gathered when it is
    needed, and computed again on the way back; gradients are summed in fp32. AdamW with a constant rate. An item is one
    token of one rank; the rate is the mean of the ranks' rates, so an ideal machine scales flat. Timed: forward,
    backward, collectives, step; the text is on the devices.

    Options:
        batch_size: texts per step, of each rank or of all.
        length: tokens of a text.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        tied: use the embedding's weights for the head.
        share_texts: the ranks have equal parts of the same texts, and exchange heads for tokens before and after
            attention (context parallelism by all-to-all, arXiv:2309.14509); without, each has texts of its own.
        learning_rate: of AdamW.
    """
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=tied,
    )
    check_memory(bench, size)  # begins to use CUDA: a mesh on an idle device would take LOCAL_RANK for its index
    with torch.device("meta"):
        model = Transformer(size, chunk=CHUNK, recompute=True)
        if share_texts:
            share_attention(model, length)
    share_out(model, init_device_mesh(bench.device.type, (torch.distributed.get_world_size(),)))
    torch.manual_seed(bench.seed + bench.rank)  # each rank draws its own part
    bench.place(model)
    torch.manual_seed(bench.seed)
    optimizer = adamw(model.parameters(), learning_rate)
    places = torch.Generator().manual_seed(bench.seed) if share_texts else None
    batches = windows(bench, batch_size, length, vocabulary, places)
    if share_texts:
        batches = map(own_part, batches)
    train(bench, model, optimizer, next(batches), batches)


def share_attention(model: Transformer, length: int) -> None:
    """Have ``model`` work on this rank's part of texts of ``length`` tokens."""
    model.begins = length // torch.distributed.get_world_size() * torch.distributed.get_rank()
    for block in model.blocks:
        block.attention = SharedAttention(model.size)


def own_part(texts: Texts) -> Texts:
    """This rank's part of texts that all ranks have."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    tokens, following = (part.chunk(ranks, 1)[rank].contiguous() for part in texts)
    return tokens, following


def share_out(model: Transformer, mesh: DeviceMesh, shared: Collection[nn.Parameter] = ()) -> None:
    """Shard each block and the rest of ``model``; gradients are summed over the ranks in fp32, as torchtitan does.

    ``shared``: parameters that the ranks have shared out already.
    """
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy, ignored_params={*shared})


AT_REST = 14
"""Bytes per parameter between steps: weights in bf16, masters and both moments of AdamW in fp32."""


def check_memory(bench: Bench, size: Dimensions) -> None:
    """Raise InputError if the ranks' memory cannot even hold weights and optimizer."""
    if bench.device.type != "cuda":
        return
    ranks = torch.distributed.get_world_size()
    needed = AT_REST * size.parameters() // ranks
    has = torch.cuda.get_device_properties(bench.device).total_memory
    if needed >= has:
        raise InputError(
            f"a model of {size.parameters():,} parameters on {ranks} devices needs {format_bytes(needed)} on each for "
            f"weights and optimizer alone, and this one has {format_bytes(has)}; use more devices or a smaller model "
            "(--layers, --width)"
        )
