"""The loss of the data-loading study."""

from __future__ import annotations

import torch
from torch import Tensor

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
