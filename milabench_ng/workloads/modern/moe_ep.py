"""Pretraining of a language model whose routed experts all devices share out."""

import statistics

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from milabench_ng.bench import Bench, Count, Derived, Rate, workload
from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.shared_experts import SharedExperts
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.llm_fsdp import check_memory, share_out
from milabench_ng.workloads.modern.training import CHUNK, adamw
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import FIRST_LOSS, flop_rates

BALANCE = 0.01
"""What the balancing loss of a layer counts (arXiv:2101.03961)."""
WEIGHTS = "(layers*(2*width*head_size*(heads+kv_heads)+width*(experts+3*active*inner))+width*vocabulary)"
"""Weights that a token is multiplied with."""
CAUSAL = "layers*heads*head_size*length"
"""Six times this are the operations per token of causal attention, forward and backward, of which half counts."""


def divisible_experts(*, experts: int, active: int, devices: int) -> None:
    """Raise InputError unless each device has as many experts, and a token as many as it goes through."""
    if experts % devices or active > experts:
        raise InputError(
            f"--experts {experts}: expected a multiple of the number of devices ({devices}), and at least --active "
            f"{active}"
        )


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=Tokens128k,
    precision="bf16_master",
    distributed=True,
    bound="gpu-compute",
    notes=("expert_load", "device_load"),
    derived=(
        *flop_rates(f"6 * ({WEIGHTS} + {CAUSAL})", f"6 * ({WEIGHTS} + 2 * {CAUSAL})"),
        Derived("busiest expert / mean", "expert_load"),
        Derived("busiest device / mean", "device_load"),
    ),
    fits=divisible_experts,
    first_loss=FIRST_LOSS,
)
def moe_ep(
    bench: Bench,
    *,
    batch_size: Count = 2,
    length: Count = 4096,
    layers: Count = 24,
    width: Count = 2880,
    heads: Count = 64,
    kv_heads: Count = 8,
    head_size: Count = 64,
    inner: Count = 2880,
    experts: Count = 32,
    active: Count = 4,
    vocabulary: Count = 201_088,
    learning_rate: Rate = 3e-4,
) -> None:
    """Train one language model with routed experts on all devices: bound by their arithmetic, or by slow links.

    The defaults have the shape of GPT-OSS 20B (arXiv:2508.10925), without its biases, sinks and windows of attention:
    20,907,927,360 parameters, of which a token is multiplied with 3,607,142,400. Each device has a part of the experts
    of every block, and tokens travel to those that their router chooses and back, in two all-to-alls; none is dropped,
    so that a busy expert costs time. A loss of each text balances them. The rest is sharded (FSDP2); each block is
    computed again on the way back. AdamW with a constant rate. An item is one token of one rank. Timed: forward,
    backward, collectives, step; the text is on the devices.

    Options:
        batch_size: texts per step and rank.
        length: tokens of a text.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        head_size: width of a head.
        inner: width of an expert.
        experts: of a block.
        active: experts that a token goes through.
        vocabulary: words.
        learning_rate: of AdamW.
    """
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_size,
        inner=inner,
        vocabulary=vocabulary,
        tied=False,
        experts=experts,
        active=active,
    )
    check_memory(bench, size)
    model, routed = shared_model(size, init_device_mesh(bench.device.type, (torch.distributed.get_world_size(),)))
    torch.manual_seed(bench.seed + bench.rank)  # each rank draws its own part
    bench.place(model)
    torch.manual_seed(bench.seed)
    optimizer = adamw(model.parameters(), learning_rate)
    batches = windows(bench, batch_size, length, vocabulary)
    example = next(batches)
    bench.rehearse(lambda: model(*example))
    for tokens, following in bench.measure(batches, count=batch_size * length):
        bench.step(model(tokens, following), optimizer)
        bench.notes.add("expert_load", statistics.fmean(load(own.copies, 1) for own in routed))
        bench.notes.add("device_load", statistics.fmean(load(own.copies, own.own) for own in routed))


def shared_model(size: Dimensions, mesh: DeviceMesh) -> tuple[Transformer, list[SharedExperts]]:
    """A model without weights yet that the ranks of ``mesh`` share out, and the experts of its blocks."""
    with torch.device("meta"):
        model = Transformer(size, chunk=CHUNK, recompute=True)
        routed = [SharedExperts(size, mesh, BALANCE) for _ in model.blocks]
    for block, own in zip(model.blocks, routed, strict=True):
        block.feed_forward = own
    share_out(model, mesh, {weight for own in routed for weight in (own.gate, own.up, own.down)})
    return model, routed


def load(copies: list[list[int]], together: int) -> float:
    """What the busiest of the experts, so many ``together``, had to do, over what they have on average.

    ``copies``: of tokens, by the rank that they came from and the expert that they went to.
    """
    each = [sum(column) for column in zip(*copies, strict=True)]
    groups = [sum(each[begin : begin + together]) for begin in range(0, len(each), together)]
    return float(max(groups) / statistics.fmean(groups))
