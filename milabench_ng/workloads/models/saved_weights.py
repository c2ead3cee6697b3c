"""Weights of a network from a file that somebody saved; no file can run code here."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

Network = TypeVar("Network", bound=nn.Module)


def restored(network: Network, file: str) -> Network:
    """``network`` with the weights in ``file``, by the names of its parameters; as it is without a file.

    Raises InputError if the file cannot be read or holds something else.
    """
    if file:
        try:
            network.load_state_dict(_weights(Path(file)))
        except (OSError, pickle.UnpicklingError, RuntimeError, TypeError, AttributeError) as error:
            raise InputError(
                f"--checkpoint {file}: not the weights of this network: {short(error)}. Name a file that fits it"
            ) from None
    return network


def _weights(file: Path) -> dict[str, Tensor]:
    if file.suffix != ".safetensors":
        loaded: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
        return loaded
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file  # an extra's: transformers brings it
    except ModuleNotFoundError:
        raise InputError(
            f'--checkpoint {file}: safetensors is not installed. Run: pip install "milabench_ng[language]"'
        ) from None
    try:
        return load_file(file)
    except SafetensorError as error:
        raise InputError(f"--checkpoint {file}: {short(error)}") from None
