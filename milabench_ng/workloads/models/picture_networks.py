"""Published networks for pictures, by name, with random weights: classifiers, a segmenter, detectors."""

from __future__ import annotations

from typing import Literal

import torchvision
from torch import nn

from milabench_ng.model.errors import InputError

Classifier = Literal[
    "resnet50",
    "convnext_base",
    "vgg16",
    "efficientnet_v2_m",
    "mobilenet_v3_large",
    "resnext50_32x4d",
    "swin_b",
    "vit_b_16",
]
"""Networks of torchvision with 1,000 classes."""
Segmenter = Literal["unet_resnet50"]
"""A U-Net with a ResNet-50 encoder and one output channel, of segmentation-models-pytorch."""
Detector = Literal["ssd300_vgg16", "fasterrcnn_resnet50_fpn_v2"]
"""Networks of torchvision with 91 classes.

Each resizes its pictures by itself: to 300 x 300, and to a shorter side of 800 pixels.
"""
Arch = Literal[Classifier, Segmenter, Detector]
LEAST_SCORE = 0.5
"""Of a box of SSD300. torchvision's is 0.01, which nearly all scores of random weights exceed: 400 boxes of each class
would go into non-maximum suppression, which then takes longer than the network. About 1,000 boxes exceed this one."""
UNET_STEP = 32
"""The encoder halves the picture five times."""
PATCH = 16
"""Side of a token of the vision transformer, in pixels."""


def network(arch: Arch, height: int, width: int) -> nn.Module:
    """The network for pictures of this size, as torchvision or segmentation-models-pytorch makes it.

    Classifiers: [N, 3, height, width] to logits [N, 1000]. Segmenter: to logits [N, 1, height, width]. Detectors, in
    evaluation: a list of pictures [3, height, width] to a list of ``boxes``, ``labels`` and ``scores``.

    Raises InputError as `check_size` does, and for the U-Net without segmentation-models-pytorch.
    """
    check_size(arch=arch, height=height, width=width)
    match arch:
        case "unet_resnet50":
            return _unet(arch)
        case "vit_b_16":
            return _torchvision(arch, image_size=width)
        case "ssd300_vgg16":
            return _torchvision(arch, weights_backbone=None, score_thresh=LEAST_SCORE)
        case "fasterrcnn_resnet50_fpn_v2":
            return _torchvision(arch, weights_backbone=None)
        case _:
            return _torchvision(arch)


def check_size(*, arch: Arch, height: int, width: int) -> None:
    """Raise InputError for pictures that the network cannot take.

    Those of the vision transformer are square and of whole patches; sides of the U-Net's are multiples of 32.
    """
    size = f"--arch {arch}: pictures of {width} x {height} pixels do not fit"
    if arch == "unet_resnet50" and (height % UNET_STEP or width % UNET_STEP):
        raise InputError(f"{size}. Both sides must be multiples of {UNET_STEP}")
    if arch == "vit_b_16" and (height != width or width % PATCH):
        raise InputError(f"{size}. Use square ones whose side is a multiple of {PATCH}")


def _unet(arch: str) -> nn.Module:
    try:
        import segmentation_models_pytorch
    except ImportError as error:
        raise InputError(
            f"--arch {arch} needs segmentation-models-pytorch, not installed here ({error}): "
            'pip install "milabench_ng[segmentation]"'
        ) from None
    unet: nn.Module = segmentation_models_pytorch.Unet("resnet50", encoder_weights=None, in_channels=3, classes=1)
    return unet


def _torchvision(arch: str, **options: object) -> nn.Module:
    found: nn.Module = torchvision.models.get_model(arch, weights=None, **options)
    return found
