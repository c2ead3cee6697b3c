"""The operations that the units TFLOP/s and MFU rest on, against what torch counts in a step of a small network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models.adapters import AdaptedTransformer
from milabench_ng.workloads.models.deep_cross import DeepCross
from milabench_ng.workloads.models.diffusion_transformer import DiffusionTransformer
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.experts import Experts
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.models.vision_transformer import PlainVisionTransformer
from milabench_ng.workloads.modern.llm_prefill import FirstToken

WORKLOADS = builtin_workloads()
COUNT, LENGTH = 4, 32
SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 96, "vocabulary": 160}
WIDTH, LAYERS, KV_WIDTH, RANK, ACTIVE = 64, 2, 32, 4, 2
"""What the corrections below need."""


def counted(step: Callable[[], object]) -> int:
    """Operations of all products, forward and backward; the attention as two products, of all pairs of tokens."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def formula(name: str, unit: str, **given: Any) -> float:
    """Operations of an item by the unit of a workload: at a rate of 1 an item a second."""
    options = {option.name: option.default for option in WORKLOADS[name].own_options}
    (found,) = (each for each in WORKLOADS[name].derived if each.unit == unit)
    if unit == "TFLOP/s":
        return 1e12 * found.of(1.0, options | given, {"devices": 1})
    return 1e10 * found.of(1.0, options | given, {"peak_tflops": 1.0})


def trained(model: Transformer) -> int:
    """Of a token; the loss is torch's own, whose products the counter knows."""
    tokens = torch.randint(SIZES["vocabulary"], (COUNT, LENGTH + 1))
    whole = counted(
        lambda: F.cross_entropy(
            model.logits(model.states(tokens[:, :-1])).flatten(0, 1), tokens[:, 1:].flatten()
        ).backward()
    )
    assert whole % (COUNT * LENGTH) == 0
    return whole // (COUNT * LENGTH)


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_of_training(kv_heads: int) -> None:
    sizes = SIZES | {"kv_heads": kv_heads}
    for name in ("llm_pretrain", "llm_fsdp"):
        expected = formula(name, "MFU % (full attention)", length=LENGTH, **sizes)
        assert trained(Transformer(Dimensions(**sizes, tied=name == "llm_pretrain"))) == pytest.approx(expected)


def test_half_of_the_attention_is_left_out_of_causal_ones() -> None:
    """Of L keys that the counter sees, a token attends to half on average: four operations a weight, thrice."""
    whole, half = (
        formula("llm_pretrain", unit, length=LENGTH, **SIZES) for unit in ("MFU % (full attention)", "MFU %")
    )
    assert whole - half == pytest.approx(3 * 4 * LAYERS * WIDTH * LENGTH / 2)


def test_of_adapters() -> None:
    """The formula has the gradient of what enters the first block, of which nothing needs one."""
    model = AdaptedTransformer(Dimensions(**SIZES, tied=False), RANK)
    model.reset_parameters()
    not_needed = 2 * (WIDTH * (WIDTH + 2 * KV_WIDTH) + 3 * RANK * WIDTH)
    expected = formula("llm_lora", "MFU % (full attention)", length=LENGTH, rank=RANK, **SIZES)
    assert trained(model) + not_needed == pytest.approx(expected)


@pytest.mark.parametrize("head_size", [16, 24])
def test_of_experts(head_size: int) -> None:
    """The formulas leave out the sums of what the active experts say; only that of moe_ep knows the size of heads."""
    model = Transformer(Dimensions(**SIZES, experts=8, active=ACTIVE, head_width=head_size))
    for part in model.modules():
        if isinstance(part, Experts):
            part.products = "batched"
            for weight in (part.gate, part.up, part.down):
                torch.nn.init.normal_(weight, std=0.02)
    sums = 6 * LAYERS * ACTIVE * WIDTH
    given = {**SIZES, "experts": 8, "active": ACTIVE, "length": LENGTH}
    found = trained(model) - sums
    assert found == pytest.approx(formula("moe_ep", "MFU % (full attention)", head_size=head_size, **given))
    if head_size == WIDTH // SIZES["heads"]:
        assert found == pytest.approx(formula("moe", "MFU % (full attention)", **given))


def test_of_a_prompt() -> None:
    model = FirstToken(Transformer(Dimensions(**SIZES, tied=False)))
    tokens = torch.randint(SIZES["vocabulary"], (COUNT, LENGTH))
    with torch.inference_mode():
        found = counted(lambda: model(tokens)) / (COUNT * LENGTH)
    assert found == pytest.approx(formula("llm_prefill", "MFU % (full attention)", length=LENGTH, **SIZES))


def test_of_a_generated_token() -> None:
    model = Generator(Dimensions(**SIZES, tied=False), COUNT, LENGTH)
    model.reset_parameters()
    with torch.inference_mode():
        found = counted(model) / COUNT
    assert found == pytest.approx(formula("llm_decode", "TFLOP/s", ring=LENGTH, **SIZES))


def test_of_a_latent() -> None:
    model = DiffusionTransformer(2, 64, 4, 8)
    latents, times, labels = torch.randn(COUNT, 4, 8, 8), torch.tensor([0, 9, 99, 999]), torch.arange(COUNT)
    found = counted(lambda: model(latents, times, labels).square().sum().backward()) / COUNT
    assert found == pytest.approx(formula("dit", "TFLOP/s", layers=2, width=64, heads=4, side=8))


def test_of_a_frame() -> None:
    """A video of one frame is a latent."""
    model = DiffusionTransformer(2, 64, 4, 8, frames=2)
    latents, times, labels = torch.randn(COUNT, 4, 8, 8), torch.tensor([9, 999]), torch.arange(COUNT // 2)
    found = counted(lambda: model(latents, times, labels).square().sum().backward()) / COUNT
    sizes = {"layers": 2, "width": 64, "heads": 4, "side": 8}
    assert found == pytest.approx(formula("dit_video", "TFLOP/s", frames=2, **sizes))
    one = formula("dit_video", "TFLOP/s", frames=1, **sizes)
    assert one == pytest.approx(formula("dit", "TFLOP/s", **sizes))
    assert formula("dit_video", "TFLOP/s") == pytest.approx(14.916e12, rel=1e-4)


def test_of_a_picture() -> None:
    model = PlainVisionTransformer(32, 16, 2, 4, 64, 1000)
    found = counted(lambda: model(torch.randn(COUNT, 3, 32, 32)).square().sum().backward()) / COUNT
    assert found == pytest.approx(formula("vit", "TFLOP/s", layers=2, width=64, heads=4, side=32))


def test_of_a_click() -> None:
    """The formula has six a weight, also of the first layer, whose inputs need no gradient."""
    model = DeepCross(13, 4, 16)
    embedded: Tensor = torch.randn(COUNT, 4, 16, requires_grad=True)
    found = counted(lambda: model(torch.randn(COUNT, 13), embedded).sum().backward()) / COUNT
    assert found + 2 * 13 * 512 == pytest.approx(formula("dlrm", "TFLOP/s", tables=4, width=16))
