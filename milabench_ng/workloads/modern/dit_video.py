"""Diffusion of videos in latent space: many tokens, all of which attend to each other."""

import torch

from milabench_ng.bench import Bench, Count, FirstLoss, Rate, workload
from milabench_ng.datasets.images.latents import Latents
from milabench_ng.workloads.models.diffusion_transformer import (
    CHANNELS,
    FREQUENCIES,
    NUMBERS,
    OUTPUTS,
    PATCH,
    TOKENS,
    DiffusionTransformer,
)
from milabench_ng.workloads.modern.dit import train, whole_patches
from milabench_ng.workloads.modern.work_formulas import flop_rates

FLOP = (
    f"(6*width*(layers*({TOKENS}*(12*width+2*frames*{TOKENS})+6*width/frames)+{OUTPUTS * PATCH**2}*{TOKENS}"
    f"+3*width/frames)+4*width*({CHANNELS * PATCH**2}*{TOKENS}+{FREQUENCIES}/frames))"
)
"""Of a frame, as `diffusion_transformer.FLOP` counts a latent: what knows time and class works once a video."""


@workload(
    unit="frames",
    most_items="batch_size * frames",
    data=Latents,
    precision="bf16_master",
    bound="gpu-compute",
    derived=flop_rates(FLOP),
    first_loss=FirstLoss("1", variance=f"2 / (batch_size * frames * {NUMBERS})"),
    fits=whole_patches,
)
def dit_video(
    bench: Bench,
    *,
    batch_size: Count = 1,
    frames: Count = 30,
    layers: Count = 28,
    width: Count = 1152,
    heads: Count = 16,
    side: Count = 64,
    learning_rate: Rate = 1e-4,
) -> None:
    """Train DiT-XL/2 on videos of 30,720 tokens (Peebles & Xie, arXiv:2212.09748): bound by the GPU's arithmetic.

    The network of `dit`, with places in time, too. A video is as many latents of pictures, with the class of the first;
    all of its tokens attend to each other, which is most of the work. An item is one frame. Timed: as `dit`.

    Options:
        batch_size: videos per step.
        frames: of a video.
        layers: blocks.
        width: of the tokens, a multiple of 4 and of heads.
        heads: of the attention.
        side: of a latent; what it has more is cut off.
        learning_rate: of AdamW.
    """
    with torch.device("meta"):
        model = DiffusionTransformer(layers, width, heads, side, frames)
    pictures = bench.loader(batch_size * frames, transform=lambda latent: latent[:, :side, :side])
    videos = ((latents, labels[::frames]) for latents, labels in pictures)
    train(bench, model, videos, learning_rate)
