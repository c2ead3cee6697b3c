"""Layers in fp8, MXFP8 and NVFP4: against numbers by hand, against bf16, and in the workloads on the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from launching import Places, run
from torch import Tensor, nn

from milabench_ng.bench import Definition
from milabench_ng.bench.layer_type import LayerType
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Loss, Ready
from milabench_ng.workloads.models.block_scaled import MXFP8, NVFP4, e2m1, tiled, untiled
from milabench_ng.workloads.models.float8_linear import Float8Linear
from milabench_ng.workloads.models.narrow_layers import (
    LEAST_CAPABILITY,
    calibrating,
    for_inference,
    for_training,
    refuse_narrow,
)
from milabench_ng.workloads.modern.llm_prefill import llm_prefill
from milabench_ng.workloads.modern.llm_pretrain import llm_pretrain

SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 128, "vocabulary": 512}
SMALL = SIZES | {"length": 64}


# Numbers


@pytest.mark.parametrize(
    ("largest", "scale"),
    [(448.0, 1.0), (449.0, 2.0), (224.0, 0.5), (225.0, 1.0), (7.0, 2.0**-6), (1.0, 2.0**-8), (0.0, 2.0**-126)],
)
def test_a_scale_of_mxfp8_is_the_power_of_two_that_brings_a_block_below_448(largest: float, scale: float) -> None:
    """1 / 448 = 2^-8.8, which is rounded up to 2^-8."""
    row = torch.zeros(1, 64)
    row[0, 5], row[0, 40] = -largest, 448.0
    found = MXFP8.of(row)
    assert untiled(found.scales, 1, 2).float().tolist() == [[scale, 1.0]]
    assert found.values[0, 5].float() * scale == pytest.approx(-largest, rel=2**-4)
    assert found.values[0, 40].float() == 448


def test_numbers_of_mxfp8_by_hand() -> None:
    """The block's scale is 2^-5: 12 / 448 = 2^-5.2. e4m3 has three bits after the first, and a least step of 2^-9."""
    row = torch.zeros(1, 32)
    row[0, :5] = torch.tensor([12.0, -1.0, 1.0625, 1.1875, 2.0**-15])
    assert MXFP8.of(row).widened()[0, :5].tolist() == [12.0, -1.0, 1.0, 1.25, 0.0]  # of two equally near, the even one


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        *[(level, level) for level in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)],
        *[(0.25, 0.0), (0.26, 0.5), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)],
        *[(5.1, 6.0), (7.0, 6.0), (1e9, 6.0)],
    ],
)
def test_numbers_of_e2m1(value: float, nearest: float) -> None:
    """OCP Microscaling Formats 1.0, table of FP4; of two equally near ones, that with an even code."""
    levels = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    codes = e2m1(torch.tensor([value, -value])).tolist()
    assert [levels[code & 7] for code in codes] == [nearest, nearest]
    assert [code >> 3 for code in codes] == [0, int(value > 0)]


def test_numbers_of_nvfp4_by_hand() -> None:
    """The largest is 2,688 = 6 x 448, so the scale of all is 1; those of blocks are 448, 2 and about 0.2."""
    row = torch.zeros(1, 64)
    row[0, :3] = torch.tensor([2688.0, -448.0, 111.0])
    row[0, 16:20] = torch.tensor([12.0, 0.9, -5.0, 7.1])
    row[0, 32:34] = torch.tensor([1.2, -0.3])
    found = NVFP4.of(row, row.max())
    assert found.whole == 1
    assert untiled(found.scales, 1, 4).float().tolist() == [[448.0, 2.0, 0.203125, 0.0]]
    assert found.values.view(torch.uint8)[0, :2].tolist() == [
        7 | (8 + 2) << 4,
        0,
    ]  # the first of a pair in the lower bits
    wide = found.widened()[0]
    assert wide[:3].tolist() == [2688.0, -448.0, 0.0]
    assert wide[16:20].tolist() == [12.0, 1.0, -4.0, 8.0]
    assert wide[32:34].tolist() == [6 * 0.203125, -1.5 * 0.203125]
    assert not wide[48:].any()


def test_what_is_beyond_the_calibrated_range_becomes_its_end() -> None:
    found = NVFP4.of(torch.full((1, 16), 1000.0), torch.tensor(100.0))
    assert found.widened().unique().tolist() == pytest.approx([100.0])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (128, 4), (130, 9), (256, 8)])
def test_scales_lie_in_the_tiles_of_cublas(rows: int, columns: int) -> None:
    """Scale (r, c) of a tile is at (r % 32) x 16 + (r / 32) x 4 + c; tiles of a row follow each other."""
    scales = torch.randint(1, 256, (rows, columns), dtype=torch.uint8)
    across = -(-columns // 4)
    expected = torch.zeros(-(-rows // 128) * across * 512, dtype=torch.uint8)
    for row in range(rows):
        for column in range(columns):
            tile, line = row // 128 * across + column // 4, row % 128
            expected[tile * 512 + line % 32 * 16 + line // 32 * 4 + column % 4] = scales[row, column]
    assert torch.equal(tiled(scales), expected)
    assert torch.equal(untiled(expected, rows, columns), scales)


@pytest.mark.parametrize(("kind", "error"), [(MXFP8, 0.027), (NVFP4, 0.095)])
def test_the_error_of_normal_numbers(kind: type[MXFP8 | NVFP4], error: float) -> None:
    """Of a matrix, the same whether its rows lie one after the other in memory or not, and of a product."""
    torch.manual_seed(0)
    left, right = torch.randn(200, 256), torch.randn(96, 256)
    narrow = [kind.of(each, each.abs().max()) for each in (left, right, right.t().contiguous().t())]
    wide = [each.widened() for each in narrow]
    assert (wide[0] - left).norm() / left.norm() == pytest.approx(error, rel=0.1)
    assert torch.equal(wide[1], wide[2])
    product: Tensor = narrow[0].times(narrow[1], torch.float32)  # type: ignore[arg-type]
    assert torch.allclose(product, wide[0] @ wide[1].t(), atol=1e-4)
    exact = left @ right.t()
    assert (product - exact).norm() / exact.norm() == pytest.approx(2**0.5 * error, rel=0.1)


# Layers


@pytest.mark.parametrize(("numbers", "error"), [("fp8", 0.04), ("mxfp8", 0.04), ("nvfp4", 0.14)])
def test_narrow_layers_are_near_the_layers_that_they_stand_for(numbers: Any, error: float) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 32, bias=False, dtype=torch.bfloat16)
    inputs = torch.randn(2, 16, 64, dtype=torch.bfloat16)
    watched = LayerType()
    watched.watch(layer)
    with torch.inference_mode():
        expected = layer(inputs)
        with calibrating(layer) as largest:
            layer(inputs)
        for_inference(layer, numbers, largest)
        watched.begin()
        found = layer(inputs)
    assert type(layer) is not nn.Linear
    assert watched.seen == "bfloat16"  # whoever watched the layer still does
    assert found.shape == expected.shape
    assert float((found - expected).norm() / expected.norm()) == pytest.approx(error, rel=0.3)


def test_fixed_scales_are_twice_what_the_calibration_saw() -> None:
    """Against the rounding to e4m3 written out, with the largest number of fp8 at twice the largest input."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 16, bias=False)).bfloat16()
    seen = [torch.randn(16, 64, dtype=torch.bfloat16) for _ in range(2)]
    first, last = layers[0].weight.detach().float(), layers[2].weight.detach().float()
    with torch.inference_mode():
        with calibrating(layers) as largest:
            for inputs in seen:
                layers(inputs)
        for_inference(layers, "fp8", largest)
        new = torch.randn(16, 64, dtype=torch.bfloat16)
        found = layers(new)
    assert isinstance(layers[0], Float8Linear)
    assert isinstance(layers[2], Float8Linear)
    assert layers[0].input_scale.item() == pytest.approx(2 * max(one.abs().max().item() for one in seen) / 448)
    assert not layers[0]._forward_pre_hooks

    def rounded(values: Tensor, scale: float) -> Tensor:
        return (values.float() / scale).bfloat16().to(torch.float8_e4m3fn).float() * scale

    hidden = rounded(new, layers[0].input_scale.item()) @ rounded(first, first.abs().max().item() / 448).t()
    hidden = hidden.relu().bfloat16()
    expected = rounded(hidden, layers[2].input_scale.item()) @ rounded(last, last.abs().max().item() / 448).t()
    assert (found - expected).norm() / expected.norm() < 0.02


@pytest.mark.parametrize("numbers", ["fp8", "mxfp8"])
def test_a_layer_that_trains_in_narrow_numbers(numbers: Any) -> None:
    """Output and both gradients are near those in bf16, fixed by what is rounded: inputs, weights and gradients."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 96, bias=False, dtype=torch.bfloat16)
    inputs = torch.randn(4, 32, 64, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(4, 32, 96, dtype=torch.bfloat16)

    def computed() -> list[Tensor]:
        output = layer(inputs)
        return [output.detach(), *torch.autograd.grad(output, [inputs, layer.weight], gradient)]

    exact = computed()
    for_training(nn.Sequential(layer), numbers)
    found = computed()
    errors = [float((one - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)]
    of_gradients = 0.059 if numbers == "fp8" else 0.037  # e5m2 has a bit less than e4m3
    assert errors == pytest.approx([0.037, of_gradients, of_gradients], rel=0.1)
    assert layer.weight.dtype is torch.bfloat16


# Workloads


@pytest.mark.parametrize(
    ("options", "error", "type_of_weights"),
    [
        ({"numbers": "fp8"}, 0.05, "float8_e4m3fn"),
        ({"numbers": "mxfp8"}, 0.05, "float8_e4m3fn"),
        ({"numbers": "nvfp4"}, 0.15, "float4_e2m1fn_x2"),
    ],
)
def test_prompts_in_narrow_numbers_say_nearly_what_bf16_does(
    options: dict[str, Any], error: float, type_of_weights: str, place: Places
) -> None:
    plain, narrow = (run(llm_prefill, 2, place, **SMALL, **given) for given in ({}, options))
    found, expected = (channel.all(Loss)[0].value for channel in (narrow, plain))
    assert found == pytest.approx(expected, rel=error)
    assert found != expected
    assert narrow.one(Ready).parameters == plain.one(Ready).parameters
    assert narrow.one(Ready).dtypes[type_of_weights] == 2 * (2 * 64 * (64 + 32) + 3 * 64 * 128)
    assert narrow.one(Done).ran == "bf16_master"


def test_the_older_name_of_fp8(place: Places) -> None:
    named, older = (run(llm_prefill, 2, place, **SMALL, **given) for given in ({"numbers": "fp8"}, {"fp8": True}))
    assert named.losses == older.losses
    with pytest.raises(InputError, match="--fp8 is --numbers fp8, and --numbers mxfp8 was given"):
        run(llm_prefill, 1, place, **SMALL, fp8=True, numbers="mxfp8")


@pytest.mark.parametrize("numbers", ["fp8", "mxfp8"])
def test_training_in_narrow_numbers_learns_as_in_bf16(numbers: str, place: Places) -> None:
    narrow, plain = (
        {
            loss.step: loss.value or 0.0
            for loss in run(llm_pretrain, 10, place, **SMALL, batch_size=4, **given).all(Loss)
        }
        for given in ({"learning_rate": 1e-2, "numbers": numbers}, {"learning_rate": 1e-2})
    )
    assert narrow[1] == pytest.approx(math.log(512) + 64 * 0.02**2 / 2, rel=0.01)
    assert narrow[10] == pytest.approx(plain[10], rel=0.005)
    assert narrow[10] < 0.99 * narrow[1]
    assert narrow[10] != plain[10]


@pytest.mark.parametrize("numbers", LEAST_CAPABILITY)
def test_gpus_that_lack_the_numbers_are_refused(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    least, cuda = LEAST_CAPABILITY[numbers], torch.device("cuda")
    refuse_narrow(torch.device("cpu"), numbers)
    for capability, refused in (((8, 0), True), ((9, 0), least > (9, 0)), ((10, 0), False), ((12, 0), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, has=capability: has)
        refuse_narrow(cuda, "bf16")
        if refused:
            needs = ".".join(map(str, least))
            with pytest.raises(InputError, match=rf"{capability[0]}\.0, and {numbers} needs {needs}\. Use bf16"):
                refuse_narrow(cuda, numbers)
        else:
            refuse_narrow(cuda, numbers)


@pytest.mark.parametrize(
    ("workload", "options", "told"),
    [
        (llm_pretrain, {"numbers": "mxfp8", "batch_size": 3, "length": 40}, r"multiples of 32, got 120 \(tokens\)"),
        (llm_pretrain, {"numbers": "mxfp8", "width": 64, "heads": 8, "kv_heads": 2}, r"got 16 \(key width\)"),
        (llm_prefill, {"numbers": "nvfp4", "inner": 40}, r"got 40 \(inner\)"),
        (llm_prefill, {"fp8": True, "inner": 40}, r"--numbers fp8: .* got 40 \(inner\)"),
    ],
)
def test_sizes_that_are_no_multiple_of_a_block_are_refused(
    workload: Definition, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        workload.check(options)
    workload.check({**options, "numbers": "bf16", **({"fp8": False} if workload is llm_prefill else {})})


@pytest.mark.parametrize(
    ("workload", "numbers", "unit", "peak"),
    [
        (llm_prefill, "bf16", "MFU %", "peak_tflops"),
        (llm_prefill, "fp8", "MFU % (of the fp8 peak)", "peak_fp8_tflops"),
        (llm_prefill, "mxfp8", "MFU % (of the fp8 peak)", "peak_fp8_tflops"),
        (llm_prefill, "nvfp4", "MFU % (of the fp4 peak)", "peak_fp4_tflops"),
        (llm_pretrain, "fp8", "MFU % (of the fp8 peak)", "peak_fp8_tflops"),
        (llm_pretrain, "mxfp8", "MFU % (of the fp8 peak)", "peak_fp8_tflops"),
    ],
)
def test_the_share_is_one_of_the_peak_in_the_same_numbers(
    workload: Definition, numbers: str, unit: str, peak: str
) -> None:
    options = {option.name: option.default for option in workload.describe("", "").options} | {"numbers": numbers}
    shares = [each for each in workload.derived if each.fits(options) and "MFU" in each.unit]
    assert [each.unit for each in shares] == [unit, *(["MFU % (full attention)"] if numbers == "bf16" else [])]
    flop = 14.496e9 if workload is llm_prefill else 5.738e9
    assert shares[0].of(1000.0, options, {peak: 2000.0}) == pytest.approx(flop * 1000 / 2000e12 * 100, rel=1e-3)
