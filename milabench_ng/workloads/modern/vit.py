"""Training of a vision transformer from JPEG files."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models import VisionTransformer
from torchvision.transforms import Compose, PILToTensor, RandomHorizontalFlip, RandomResizedCrop

from milabench_ng.bench import Bench, Count, FirstLoss, Rate, workload
from milabench_ng.datasets.images.imagenet import CLASSES, ImageNet
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.vision_transformer import PlainVisionTransformer
from milabench_ng.workloads.modern.training import adamw
from milabench_ng.workloads.modern.work_formulas import flop_rates

PATCH = 16
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours."""
TOKENS = f"(side * side / {PATCH * PATCH} + 1)"
FLOP = f"(6 * layers * width * {TOKENS} * (12 * width + 2 * {TOKENS}) + width * (12 * side * side + {6 * CLASSES}))"
"""Of a picture, forward and backward: six per weight and token, four for the patches, whose pixels have no gradient;
attention over all pairs of tokens."""


def whole_patches(*, width: int, heads: int, side: int) -> None:
    """Raise InputError unless the heads are of one width, and the pictures are of whole patches."""
    if width % heads or side % PATCH:
        raise InputError(f"--width {width} must be a multiple of --heads ({heads}), --side {side} of {PATCH}")


@workload(
    unit="images",
    data=ImageNet,
    precision="bf16_master",
    bound="gpu-compute",
    auto_batch=True,
    derived=flop_rates(FLOP),
    first_loss=FirstLoss(f"log({CLASSES})"),
    fits=whole_patches,
    formerly={"network": "torchvision"},
)
def vit(
    bench: Bench,
    *,
    batch_size: Count = 256,
    layers: Count = 24,
    width: Count = 1024,
    heads: Count = 16,
    side: Count = 224,
    learning_rate: Rate = 3e-4,
    network: Literal["torchvision", "plain"] = "torchvision",
) -> None:
    """Train ViT-L/16 on JPEG files (Dosovitskiy et al., arXiv:2010.11929): bound by the GPU, if the CPUs feed it.

    torchvision's network, 304,326,632 parameters, without dropout; cross entropy; AdamW in its fused form. An item is
    one picture. Timed: the wait for the loader processes, which decode, crop and flip; copy, normalising on the device,
    forward, backward, step.

    Options:
        batch_size: pictures per step.
        layers: blocks.
        width: of the tokens, a multiple of heads.
        heads: of the attention.
        side: pixels of the square pictures, a multiple of 16.
        learning_rate: of AdamW.
        network: torchvision: its own; plain: the same, written with one product for queries, keys and values.
    """
    model = bench.place(
        VisionTransformer(side, PATCH, layers, heads, width, 4 * width)
        if network == "torchvision"
        else PlainVisionTransformer(side, PATCH, layers, heads, width, CLASSES)
    )
    optimizer = adamw(model.parameters(), learning_rate)
    batches = bench.loader(batch_size, transform=cut_out(side))
    normal = Normal(bench)
    for pictures, labels in bench.measure(batches):
        bench.step(F.cross_entropy(model(normal(pictures)).float(), labels), optimizer)


def cut_out(side: int) -> Compose:
    """The usual augmentation, up to bytes [3, side, side]: a random crop, randomly flipped."""
    return Compose([RandomResizedCrop(side), RandomHorizontalFlip(), PILToTensor()])


class Normal:
    """Makes bytes of pictures normal, on the device, in the type of the weights."""

    def __init__(self, bench: Bench) -> None:
        shape = (1, 3, 1, 1)
        self._mean, self._spread = (
            bench.to_device(255 * torch.tensor(values).view(shape)) for values in (MEAN, SPREAD)
        )

    def __call__(self, pictures: Tensor) -> Tensor:
        """Bytes [N, 3, H, W] to numbers of about 0 mean and unit variance."""
        result: Tensor = (pictures - self._mean) / self._spread
        return result
