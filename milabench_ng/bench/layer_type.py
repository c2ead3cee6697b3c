"""The type that the model itself computes with: that of the first layer's output in the first step.

Weights and a probe show what the mode makes of them; a model that leaves the mode's context, or converts its input,
shows only here. Nothing of it is left after the first step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

LAYERS = (nn.Linear, _ConvNd)
"""Layers whose output has the type that their product was computed in, in every mode."""


class LayerType:
    """Watches the linear and convolution layers of the placed modules until the first step is over."""

    def __init__(self) -> None:
        self._handles: dict[nn.Module, RemovableHandle] = {}
        self._stepping = False
        self._in_step: torch.dtype | None = None
        self._made: torch.dtype | None = None
        """While a step was compiled, or captured as a CUDA graph."""
        self._compiled = False

    @property
    def seen(self) -> str | None:
        """The type by name, such as ``"float16"``; None if no layer has run."""
        found = self._in_step or self._made
        return None if found is None else str(found).removeprefix("torch.")

    def watch(self, module: nn.Module) -> None:
        for layer in module.modules():
            if isinstance(layer, LAYERS) and layer not in self._handles:
                self._handles[layer] = layer.register_forward_hook(self._hook())

    def begin(self) -> None:
        """The first step begins: what runs before it may be outside the mode's context."""
        self._stepping = True

    def end(self) -> None:
        """The first step is over."""
        self._stepping = False
        if not self._compiled:  # what one block was compiled to runs others too, and to remove theirs compiles again
            for handle in self._handles.values():
                handle.remove()
        self._handles.clear()

    def _hook(self) -> Any:
        def note(dtype: torch.dtype, compiling: bool, on_gpu: bool) -> None:
            capturing = on_gpu and torch.cuda.is_current_stream_capturing()
            self._note(dtype, compiling=compiling, capturing=capturing)

        # As `torch.compiler.assume_constant_result`, which would import the compiler, which takes seconds: it runs
        # `note` while it compiles and leaves no call behind. Removing such a hook would make it compile again.
        note._dynamo_marked_constant = True  # type: ignore[attr-defined]

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                note(output.dtype, torch.compiler.is_compiling(), output.is_cuda)

        return hook

    def _note(self, dtype: torch.dtype, *, compiling: bool, capturing: bool) -> None:
        if compiling:
            self._compiled = True
        if self._stepping:
            self._in_step = self._in_step or dtype
        elif compiling or capturing:  # a step runs what was compiled, or the graph, without the layers
            self._made = dtype
