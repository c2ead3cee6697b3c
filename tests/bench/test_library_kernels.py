"""The record says which kernel of attention worked, and which library moved messages between ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from milabench_ng.bench.library_kernels import LibraryKernels
from milabench_ng.model.events import Done


class Attending(nn.Module):
    """Attention between linear layers, computed again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.out(checkpoint(self._mixed, self.into(rows), use_reentrant=False))

    def _mixed(self, rows: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(rows, rows, rows)


def trained(model: nn.Module, *, rehearsed: bool = False) -> dict[str, str]:
    """What a launch that trains ``model`` tells."""
    channel = Recording(last=2)
    bench = bench_on(channel)
    bench.place(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if rehearsed:
        bench.rehearse(lambda: model(torch.ones(2, 3, 4, 8)).sum())
    for rows in bench.measure([torch.ones(2, 3, 4, 8)]):
        bench.step(model(rows).sum(), optimizer)
    return channel.one(Done).kernels


def test_the_graph_of_the_first_loss_names_the_kernel() -> None:
    assert trained(Attending()) == {"attention": "flash"}  # the one that torch has for CPUs


def test_batch_normalisation_names_whose_it_is() -> None:
    model = nn.Sequential(nn.Flatten(0, 2), nn.Linear(8, 4), nn.BatchNorm1d(4))
    assert trained(model) == {"batch normalisation": "native"}  # torch's own, on CPUs


def test_without_such_kernels_there_is_nothing_to_tell() -> None:
    assert trained(nn.Linear(8, 1)) == {}


@pytest.mark.parametrize(("backend", "name"), [(SDPBackend.MATH, "math"), (SDPBackend.FLASH_ATTENTION, "flash")])
def test_inference_asks_torch_before_the_clock(backend: SDPBackend, name: str) -> None:
    channel = Recording(last=1)
    bench = bench_on(channel)
    model = bench.place(Attending()).eval()
    with sdpa_kernel(backend):
        bench.warm(model, torch.ones(2, 3, 4, 8))
    for rows in bench.measure([torch.ones(2, 3, 4, 8)]):
        bench.infer(model, rows)
    assert channel.one(Done).kernels == {"attention": name}


@pytest.mark.parametrize(("backend", "name"), [(SDPBackend.MATH, "math"), (SDPBackend.FLASH_ATTENTION, "flash")])
def test_a_rehearsal_asks_torch_too(backend: SDPBackend, name: str) -> None:
    with sdpa_kernel(backend):
        assert trained(Attending(), rehearsed=True) == {"attention": name}


def test_torch_is_asked_once() -> None:
    """A compiled network that runs in such a context would be compiled anew."""
    kernels = LibraryKernels()
    with kernels.watching():
        assert torch.overrides._is_torch_function_mode_enabled()
    with kernels.watching():
        assert not torch.overrides._is_torch_function_mode_enabled()


def test_the_library_of_collectives_is_that_of_the_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    assert LibraryKernels().seen({}) == {"collectives": "gloo"}
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    assert LibraryKernels().seen({}) == {"collectives": "NCCL 2.28.9"}
    told = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_DEBUG": "INFO"}
    assert LibraryKernels().seen(told) == {"collectives": "NCCL 2.28.9 NCCL_ALGO=Ring NCCL_PROTO=Simple"}


def test_torch_is_asked_about_the_types_that_autocast_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.dtype] = []

    def choose(query: Tensor, *_args: object) -> int:
        asked.append(query.dtype)
        return SDPBackend.FLASH_ATTENTION.value

    monkeypatch.setattr(torch, "_fused_sdp_choice", choose)
    kernels = LibraryKernels()
    rows = torch.ones(2, 3, 4, 8)
    with torch.autocast("cpu", torch.bfloat16), kernels.watching():
        F.scaled_dot_product_attention(rows, rows, rows)
    assert asked == [torch.bfloat16]
    monkeypatch.delattr(torch, "_fused_sdp_choice")
    without = LibraryKernels()
    with without.watching():
        F.scaled_dot_product_attention(rows, rows, rows)
    assert (kernels.seen({}), without.seen({})) == ({"attention": "flash"}, {})
