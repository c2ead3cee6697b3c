"""Training a U-Net on hyperspectral images that are as large as a storage system fears."""

import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench, Count, Derived, Rate, WholeNumber, workload
from milabench_ng.datasets.spectra.hyperspectral import Hyperspectral
from milabench_ng.datasets.spectra.scenes import CLASSES
from milabench_ng.workloads.io.hyperspectral_feed import STORED, Strategy, feed, ready

SMOOTH = 1e-5
"""Keeps the Dice coefficient of a class without pixels finite."""


def masked_loss(logits: Tensor, labels: Tensor, valid: Tensor, weights: Tensor) -> Tensor:
    """Half the weighted cross entropy plus half the Dice loss, over valid pixels only.

    The Dice loss (Milletari et al., arXiv:1606.04797, without squares) is the mean over the classes that the batch
    shows. Nothing here waits for the device: no shape depends on values.

    ``logits``: [N, C, H, W]. ``labels``: int64 [N, H, W], below C also where a pixel is not valid. ``valid``: bool
    [N, H, W]. ``weights``: of the classes [C].
    """
    classes = torch.arange(logits.shape[1], device=labels.device)[:, None, None]
    targets = ((labels[:, None] == classes) & valid[:, None]).float()
    logarithms = logits.float().log_softmax(1)
    entropy = -(targets * logarithms * weights[:, None, None]).sum() / valid.sum().clamp(min=1)
    probabilities = logarithms.exp() * valid[:, None]
    shared, found, wanted = (part.sum((0, 2, 3)) for part in (targets * probabilities, probabilities, targets))
    dice = (2 * shared + SMOOTH) / (found + wanted + SMOOTH)
    present = wanted > 0
    return (entropy + 1 - (dice * present).sum() / present.sum().clamp(min=1)) / 2


DECAY = 0.99
"""Of the learning rate in each epoch."""


@workload(
    unit="images",
    data=STORED,
    precision="amp",
    bound="io",
    requires=("blosc2", "segmentation_models_pytorch"),
    extra="hyperspectral",
    pace_only=("threads",),
    formerly={"threads": 1},
    derived=(Derived("s/epoch", f"{Hyperspectral.images} / rate"),),
)
def hsi_segmentation(
    bench: Bench,
    *,
    strategy: Strategy = "ring_buffer",
    batch_size: Count = 6,
    learning_rate: Rate = 1e-3,
    keep_cached: bool = False,
    threads: WholeNumber = 0,
) -> None:
    """Train a U-Net on hyperspectral images, fed in one of five ways: bound by storage and host, or by the GPU at last.

    The data-loading study of the hyperspectral tissue classification group (PyTorch Conference 2023): an
    EfficientNet-b5 as encoder (Tan and Le, arXiv:1905.11946), 100 channels, 19 classes, 31,260,515 parameters, random
    weights; half cross entropy, half Dice loss over valid pixels; Adam, whose rate decays with each epoch; cuDNN's
    autotuner on. Half of the images are turned, scaled and shifted, half mirrored, half upended.

    An item is one image of 480 x 640 pixels. Timed: the wait for the batch, which is read, decompressed and, up to
    `fp16`, augmented by loader processes; copy, augmentation from `gpu_aug` on, forward, backward, step. An epoch of
    the study has 740 images, whatever the scale of the dataset. The study timed whole epochs and with them the refill
    of the pipeline, about 5 % of an epoch, which a window of steady work does not have.

    Options:
        strategy: original: float32 as the camera writes it, augmented by the loader; blosc: compressed; fp16: float16,
            compressed; gpu_aug: and augmented on the device; ring_buffer: and written into page-locked batches.
        batch_size: images per step.
        learning_rate: of Adam in the first epoch.
        keep_cached: leave files in the page cache, so that later epochs of a small set read RAM, not the storage.
        threads: that decompress an image in each loader process; 0: the tenant's CPUs over these processes, at most 8.
    """
    torch.backends.cudnn.benchmark = True
    with feed(bench, strategy, batch_size, keep_cached, threads) as batches:
        model = bench.place(network())
        optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
        weights = torch.ones(CLASSES, device=bench.device)  # all classes of the twin are as frequent
        left = Hyperspectral.images
        for batch in bench.measure(batches, count=batch_size):
            features, labels, valid = ready(batch, strategy, next(model.parameters()).dtype)
            bench.step(masked_loss(model(features), labels, valid, weights), optimizer)
            left -= batch_size
            if left <= 0:
                left += Hyperspectral.images
                schedule.step()


def network() -> nn.Module:
    """The U-Net: [N, 100, H, W] to logits [N, 19, H, W]; both sides are multiples of 32."""
    import segmentation_models_pytorch  # an extra: the catalogue lists this workload without it

    unet: nn.Module = segmentation_models_pytorch.Unet(
        "efficientnet-b5", encoder_weights=None, in_channels=Hyperspectral.shape[2], classes=CLASSES
    )
    return unet
