"""Reference traces of real workloads: an honest launch is inside, one that does less work than it says is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from launching import Places, run
from parts.trace_bands import build
from torch import Tensor, nn

from milabench_ng.analysis.launch.traces import ReferenceTrace, Traced, compare
from milabench_ng.bench import Bench
from milabench_ng.model.events import GradientNorm, Loss
from milabench_ng.worker.discovery import builtin_workloads

WORKLOADS = builtin_workloads()
SIZES: dict[str, dict[str, Any]] = {
    "cart": {"steps": 50},
    "convnet": {"arch": "resnet18", "batch_size": 16, "image_size": 64},
    "fast_style": {"batch_size": 4, "image_size": 32, "style_size": 32},
    "recom": {"batch_size": 256, "factors": 8, "layers": "32,32,16,8"},
    "toy_reg": {"batch_size": 64},
    "vae": {"batch_size": 64},
}
Change = Callable[[Bench], None]


def launch(name: str, place: Places, *, tenant: int = 0, change: Change | None = None, **less: Any) -> Traced:
    """What the record of a launch would say, which claims the options of ``SIZES`` and works with ``less``."""
    channel = run(WORKLOADS[name], 2, lambda data: place(data, 0.002), change, tenant=tenant, **SIZES[name] | less)
    return Traced(
        label=f"try.{name}",
        arguments=SIZES[name],
        data=None,
        kind="cpu",
        precision="fp32",
        losses=tuple((f"{tenant}/0", str(event.step), event.value) for event in channel.all(Loss)),
        gradient_norms=tuple((f"{tenant}/0", str(event.step), event.value) for event in channel.all(GradientNorm)),
        digests={},
    )


@pytest.fixture(scope="module")
def reference(place: Places) -> Callable[[str], ReferenceTrace]:
    """The trace of a test, made of two tenants; each is made once."""
    made: dict[str, ReferenceTrace] = {}

    def find(name: str) -> ReferenceTrace:
        if name not in made:
            tenants = [(launch(name, place, tenant=tenant), "") for tenant in (0, 1)]
            made[name] = build("try", tenants, ()).tests[f"try.{name}"]
        return made[name]

    return find


@pytest.mark.parametrize("name", SIZES)
def test_an_honest_launch_of_another_tenant_with_other_kernels_is_inside_a_strong_trace(
    name: str, place: Places, reference: Callable[[str], ReferenceTrace]
) -> None:
    trace = reference(name)
    for kernels in (nullcontext(), torch.backends.mkldnn.flags(enabled=False)):
        with kernels:
            found = compare(launch(name, place, tenant=5), trace, "")
        assert (found.strength, found.deviations) == ("strong", ())


def zero_inputs(bench: Bench) -> None:
    """What the workload is given is zero: no picture was read."""
    given = bench.to_device

    def zeros(value: Any) -> Any:
        made = given(value)
        parts = made if isinstance(made, list) else [made]
        for part in parts:
            if isinstance(part, Tensor) and part.is_floating_point():
                part.zero_()
        return made

    bench.to_device = zeros  # type: ignore[method-assign]


def half_trained(bench: Bench) -> None:
    """Half of the parameters need no gradient, and half of the backward pass is left out."""
    place = bench.place

    def frozen(module: nn.Module) -> nn.Module:
        parameters = list(place(module).parameters())
        for parameter in parameters[: len(parameters) // 2]:
            parameter.requires_grad_(False)
        return module

    bench.place = frozen  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("name", "less"),
    [
        pytest.param("cart", {"steps": 25}, id="half of an episode"),
        pytest.param("convnet", {"batch_size": 8}, id="half of the pictures"),
        pytest.param("convnet", {"image_size": 32}, id="smaller pictures"),
        pytest.param("convnet", {"change": zero_inputs}, id="no pictures"),
        pytest.param("convnet", {"change": half_trained}, id="half of the layers"),
        pytest.param("recom", {"batch_size": 128}, id="half of the ratings"),
        pytest.param("toy_reg", {"batch_size": 32}, id="half of the points"),
        pytest.param("toy_reg", {"change": half_trained}, id="half of the weights"),
        pytest.param("vae", {"batch_size": 32}, id="half of the digits"),
        pytest.param("vae", {"change": zero_inputs}, id="no digits"),
    ],
)
def test_less_work_leaves_a_strong_trace(
    name: str, less: dict[str, Any], place: Places, reference: Callable[[str], ReferenceTrace]
) -> None:
    assert compare(launch(name, place, **less), reference(name), "").deviations


def test_without_gradient_norms_half_of_the_backward_pass_is_not_seen_and_the_trace_is_weak(
    place: Places, reference: Callable[[str], ReferenceTrace]
) -> None:
    trace = reference("convnet")
    old = ReferenceTrace(
        arguments=trace.arguments,
        data=None,
        losses={"cpu": {"fp32": {"1": trace.losses["cpu"]["fp32"]["1"]}}},
    )
    found = compare(launch("convnet", place, change=half_trained), old, "")
    assert (found.strength, found.deviations) == ("weak", ())


def test_half_of_the_batch_is_not_seen_in_fast_style(place: Places, reference: Callable[[str], ReferenceTrace]) -> None:
    """As docs/methodology/correctness.md says: its pictures are alike to a network that has not learned."""
    assert not compare(launch("fast_style", place, batch_size=2), reference("fast_style"), "").deviations
