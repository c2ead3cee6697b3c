"""What of torch's libraries worked: kernels of attention, batch normalisation and recurrence, collective operations.

``scaled_dot_product_attention`` takes one of several kernels, by device, shapes, types and versions. The graph of a
loss names those that it will go back through. Where a network runs before the clock (inference, a rehearsal, before it
is compiled), torch is asked what it takes, and attention that no fused kernel computes is ``math``. Batches are
normalised by cuDNN or by torch itself (``native``), which depends on the type: the same network in bf16 may run other
code than in fp16.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

_ATTENTION = "attention"
_IN_GRAPH = {
    _ATTENTION: re.compile(r"ScaledDotProduct(\w+?)Attention(?:ForCpu)?Backward\d+"),
    "batch normalisation": re.compile(r"(Cudnn|Miopen|Native)BatchNormBackward\d+"),
    "recurrence": re.compile(r"(Cudnn|Miopen|Mkldnn)Rnn(?:Layer)?Backward\d+"),
}
"""Names of nodes on the way back, by what they do (torch's derivatives.yaml)."""
_CHOSEN_BY = ("NCCL_ALGO", "NCCL_PROTO")
"""Variables that take the choice of algorithm and protocol from NCCL, which tells nobody what it chose."""


class LibraryKernels:
    """Notes the kernels of the first loss, and of what runs before the clock."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, None]] = {what: {} for what in _IN_GRAPH}
        self._looked = self._asked = False

    def seen(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """By what they do: ``attention`` (flash, efficient, cudnn, ...), ``collectives`` ...; only what was seen."""
        found = {what: ", ".join(sorted(kernels)) for what, kernels in self._seen.items()}
        return {what: text for what, text in (found | {"collectives": _collectives(environment)}).items() if text}

    def note(self, what: str, kernel: str) -> None:
        self._seen.setdefault(what, {})[kernel] = None

    def look(self, loss: Tensor) -> None:
        """Look through the graph of ``loss``, if it is the first."""
        waiting = [] if self._looked else [loss.grad_fn]
        known: set[Any] = {None}
        self._looked = True
        while waiting:
            node = waiting.pop()
            if node is not None and node not in known:
                known.add(node)
                waiting += [following for following, _ in node.next_functions]
                for what, name in _IN_GRAPH.items():
                    if found := name.fullmatch(node.name()):
                        self.note(what, found[1].lower())

    def watching(self) -> AbstractContextManager[object]:
        """A context in which torch is asked for its kernels, if it was not before; a call of Python an operator.

        Once is enough, and a compiled network would be compiled anew for it.
        """
        if self._asked:
            return nullcontext()
        self._asked = True
        return _Watch(lambda name: self.note(_ATTENTION, name.removesuffix("_ATTENTION").lower()))


class _Watch(TorchFunctionMode):
    """Asks, for each call of attention, which kernel torch takes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.scaled_dot_product_attention and (choose := getattr(torch, "_fused_sdp_choice", None)) is not None:
            tensors = (_as_cast(value) for value in args)
            self._tell(SDPBackend(choose(*tensors, **{name: _as_cast(value) for name, value in given.items()})).name)
        return func(*args, **given)


def _as_cast(value: Any) -> Any:
    """What attention gets: autocast converts its inputs below this mode."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    kind = value.device.type
    return value.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else value


def _collectives(environment: Mapping[str, str]) -> str:
    """The library behind the process group with its version, and what it was told to take; empty without a group."""
    if not dist.is_initialized():
        return ""
    if dist.get_backend() != "nccl":
        return dist.get_backend()
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    told = [f"{name}={environment[name]}" for name in _CHOSEN_BY if name in environment]
    return " ".join((f"NCCL {version}", *told))
