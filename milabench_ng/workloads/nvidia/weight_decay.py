"""Weight decay as the examples have it: none for biases and for the weights of normalisations."""

from typing import Any

from torch import nn


def decayed(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups of parameters for an optimizer: those that decay, with more than one dimension, and all others."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [one for one in trained if one.dim() > 1], "weight_decay": weight_decay},
        {"params": [one for one in trained if one.dim() <= 1], "weight_decay": 0.0},
    ]
