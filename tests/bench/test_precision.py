"""Precision modes on the CPU: types, one step by hand, and what is said to have run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from milabench_ng.bench.loss_scale import STATIC_SCALE, Dynamic
from milabench_ng.bench.precision import MODES, Half, HalfMaster, Precision, Probed, in_buckets, probe, ran

CPU = torch.device("cpu")
FP16, FP32, BF16 = torch.float16, torch.float32, torch.bfloat16


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


def mode_on_cpu(mode: str) -> Precision:
    """With a loss scale at which fp16 holds the gradients of these tests from the first step on."""
    precision = MODES[mode](CPU)
    if isinstance(precision.scale, Dynamic):
        precision.scale.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    return precision


def one_weight(value: float) -> nn.Linear:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, value)
    return module


@pytest.mark.parametrize(
    ("mode", "convolution", "norm", "inputs", "product"),
    [
        ("fp32", FP32, FP32, None, FP32),
        ("tf32", FP32, FP32, None, FP32),
        ("torch_default", FP32, FP32, None, FP32),
        ("amp", FP32, FP32, None, FP16),
        ("bf16", FP32, FP32, None, BF16),
        ("half", FP16, FP16, FP16, FP32),
        ("half_master", FP16, FP32, FP16, FP32),
        ("half_master_static", FP16, FP32, FP16, FP32),
        ("bf16_master", BF16, BF16, BF16, FP32),
    ],
)
def test_types(
    mode: str, convolution: torch.dtype, norm: torch.dtype, inputs: torch.dtype | None, product: torch.dtype
) -> None:
    precision = MODES[mode](CPU)
    model = network()
    precision.cast(model)
    assert model[0].weight.dtype is model[4].weight.dtype is model[4].bias.dtype is convolution
    assert model[1].weight.dtype is model[1].running_mean.dtype is norm
    assert precision.input_dtype is inputs
    with precision.context():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is product
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("mode", MODES)
def test_a_step_by_hand(mode: str) -> None:
    """Loss = 3 w, so the gradient is 3: w = 1 - 0.25 * 3. All of it is exact in fp16."""
    precision = mode_on_cpu(mode)
    module = one_weight(1.0)
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
    for step in (1, 2):
        precision.step(3 * module.weight.float().sum(), optimizer, None)
        assert module.weight.item() == 1 - step * 0.75


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_clipped_before_the_step_and_after_unscaling(mode: str) -> None:
    """Gradients 3 and 4 have norm 5; clipped to 2.5 they are 1.5 and 2."""
    precision = mode_on_cpu(mode)
    modules = nn.ModuleList([one_weight(0.0), one_weight(0.0)])
    precision.cast(modules)
    optimizer = torch.optim.SGD(modules.parameters(), lr=1.0)
    precision.step(sum(k * m.weight.float().sum() for k, m in zip((3, 4), modules, strict=True)), optimizer, 2.5)
    assert [m.weight.item() for m in modules] == pytest.approx([-1.5, -2.0], rel=1e-3)


def small_steps(precision: Precision, steps: int) -> tuple[nn.Linear, torch.optim.Optimizer]:
    """Steps of 1e-4 from 1.0, whose neighbour in fp16 is 1 - 2**-11."""
    module = one_weight(1.0)
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.5)
    for _ in range(steps):
        precision.step(module.weight.float().sum(), optimizer, None)
        optimizer.state.clear()  # so that each step is 1e-4
    return module, optimizer


def test_masters_remember_what_fp16_cannot() -> None:
    module, optimizer = small_steps(mode_on_cpu("half_master"), 5)
    (master,) = optimizer.param_groups[0]["params"]
    assert master.dtype is FP32
    assert master.item() == pytest.approx(1 - 5e-4, abs=1e-6)
    assert module.weight.dtype is FP16
    assert module.weight.item() == 1 - 2**-11
    assert small_steps(Half(CPU), 5)[0].weight.item() == 1.0


def test_the_optimizer_keeps_masters_and_state_in_fp32_and_batch_normalisation_itself() -> None:
    precision = mode_on_cpu("half_master")
    model = network()
    precision.cast(model)
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(4, 3, 4, 4).half()
    precision.step(F.cross_entropy(model(images).float(), torch.tensor([0, 1, 0, 1])) / 64, optimizer, None)
    kept = optimizer.param_groups[0]["params"]
    assert [parameter.dtype for parameter in kept] == [FP32] * 6
    assert kept[2] is model[1].weight
    assert kept[0] is not model[0].weight
    assert {state["exp_avg"].dtype for state in optimizer.state.values()} == {FP32}
    for master, weight in zip(kept, model.parameters(), strict=True):
        assert torch.equal(master.to(weight.dtype), weight)


def test_half_master_equals_fp32_where_fp16_is_exact() -> None:
    """The same network in fp32, its weights rounded to fp16, takes the same step but for rounded activations."""
    torch.manual_seed(0)
    model, plain = network(), network()
    precision = mode_on_cpu("half_master")
    precision.cast(model)
    plain.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    before = [parameter.detach().clone() for parameter in plain.parameters()]
    images, labels = torch.randn(8, 3, 4, 4).half(), torch.arange(8) % 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    precision.step(F.cross_entropy(model(images), labels), optimizer, None)
    Precision(CPU).step(
        F.cross_entropy(plain(images.float()), labels), torch.optim.SGD(plain.parameters(), lr=0.5), None
    )
    for master, start, exact in zip(optimizer.param_groups[0]["params"], before, plain.parameters(), strict=True):
        moved = (exact - start).norm()
        assert (master - exact).norm() < 0.02 * moved + 1e-4


@pytest.mark.parametrize("mode", ["amp", "half_master"])
def test_an_infinite_gradient_skips_the_step_and_halves_the_scale(mode: str) -> None:
    precision: Any = MODES[mode](CPU)
    module = one_weight(1.0)
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
    scale = precision.scale.scaler.get_scale()
    precision.step(module.weight.float().sum() * 1e38, optimizer, None)
    assert module.weight.item() == 1.0
    assert precision.scale.scaler.get_scale() == scale / 2


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1),
        lambda parameters: torch.optim.Adagrad(parameters, lr=1e-3),
    ],
    ids=["state in the first step", "state before"],
)
def test_bf16_masters_follow_an_fp32_reference(optimizer_of: Callable[[Iterable[nn.Parameter]], Optimizer]) -> None:
    """Steps in fp32 on gradients that bf16 weights give, bucket by bucket, and weights that are the masters rounded."""
    torch.manual_seed(0)
    precision = MODES["bf16_master"](CPU)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    precision.cast(model)
    optimizer = optimizer_of(model.parameters())
    reference = [nn.Parameter(weight.detach().float()) for weight in model.parameters()]
    plain = optimizer_of(reference)
    for step in range(5):
        inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).bfloat16()
        loss = F.cross_entropy(model(inputs).float(), torch.arange(8) % 3)
        precision.backward(loss, optimizer)
        for parameter, weight in zip(reference, model.parameters(), strict=True):
            assert weight.grad is not None
            assert weight.grad.dtype is BF16
            parameter.grad = weight.grad.float()
        precision.apply(optimizer, None)
        plain.step()
    masters = optimizer.param_groups[0]["params"]
    for master, parameter, weight in zip(masters, reference, model.parameters(), strict=True):
        assert torch.equal(master, parameter)
        assert torch.equal(weight, master.bfloat16())
        assert not torch.equal(weight.float(), master)
    kept = [value.dtype for state in optimizer.state.values() for value in state.values() if value.ndim]
    assert set(kept) == {FP32}


def test_buckets_hold_all_weights_once_and_no_more_than_they_may() -> None:
    sizes = (3, 4, 9, 1, 1, 8)
    weights = [torch.full((size,), float(at)) for at, size in enumerate(sizes)]
    found = in_buckets(weights, list(reversed(weights)), 8)
    assert [[len(weight) for weight in bucket] for bucket, _ in found] == [[3, 4], [9], [1, 1], [8]]
    assert [float(master[0]) for _, masters in found for master in masters] == [5, 4, 3, 2, 1, 0]


def test_parameters_that_are_fp32_themselves_step_once_among_bf16_ones() -> None:
    """As tables beside a dense part."""
    precision = MODES["bf16_master"](CPU)
    modules = nn.ModuleList([one_weight(1.0), one_weight(1.0)])
    precision.cast(modules)
    modules[1].float()
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.25, momentum=0.5)
    for left in (0.75, 0.375):
        precision.backward(sum(module.weight.float().sum() for module in modules), optimizer)
        assert [gradient.item() for gradient in precision.gradients(optimizer)] == [1.0, 1.0]
        precision.apply(optimizer, None)
        assert [module.weight.item() for module in modules] == [left] * 2
        assert [module.weight.dtype for module in modules] == [BF16, FP32]


INFINITE = (3, 4, 9)
"""Steps whose gradient is infinite in the tests below."""


def ten_steps(precision: Precision, optimizer: torch.optim.Optimizer, module: nn.Linear) -> list[int]:
    """Steps skipped so far, after each of ten. The gradient of a root at 0 is infinite, its loss is not."""
    skipped = []
    for step in range(1, 11):
        weight = module.weight.float().sum()
        precision.step((weight - weight.detach()).sqrt() if step in INFINITE else weight, optimizer, None)
        skipped.append(precision.scale.skipped())
    return skipped


@pytest.mark.parametrize(("mode", "fused"), [("amp", False), ("half_master", False), ("amp", True)])
def test_skipped_steps_are_counted(mode: str, fused: bool) -> None:
    """A fused optimizer is called in every step, and skips some on the device, as it is told what was found."""
    precision = mode_on_cpu(mode)
    module = one_weight(0.0)
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.25, fused=fused)
    assert ten_steps(precision, optimizer, module) == [0, 0, 1, 2, 2, 2, 2, 2, 3, 3]
    assert module.weight.item() == -0.25 * 7


def test_steps_of_two_optimizers_are_counted_together() -> None:
    precision = mode_on_cpu("amp")
    modules = [one_weight(0.0), one_weight(0.0)]
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.25) for module in modules]
    skipped = [
        ten_steps(precision, optimizer, module)[-1] for optimizer, module in zip(optimizers, modules, strict=True)
    ]
    assert skipped == [3, 6]


@pytest.mark.parametrize("mode", ["fp32", "bf16", "half", "half_master_static", "bf16_master"])
def test_other_modes_skip_nothing_and_an_infinite_gradient_spoils_the_weights(mode: str) -> None:
    precision = MODES[mode](CPU)
    module = one_weight(0.0)
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
    assert ten_steps(precision, optimizer, module) == [0] * 10
    assert not module.weight.isfinite()


def test_the_static_scale_saves_gradients_that_fp16_would_lose() -> None:
    """2^-27 is less than half of fp16's smallest number, 2^-24; times 128 it is 2^-20."""
    tiny = 2.0**-27
    moved = {}
    for mode in ("half", "half_master_static"):
        precision = MODES[mode](CPU)
        module = one_weight(0.0)
        precision.cast(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=2.0**15)
        precision.step(tiny * module.weight.float().sum(), optimizer, None)
        moved[mode] = module.weight.item()
    assert STATIC_SCALE == 128
    assert moved == {"half": 0.0, "half_master_static": -(2.0**-12)}


def test_a_step_with_a_static_scale_reads_nothing_on_the_host() -> None:
    """On the meta device there is no number to read: whatever the host waits for raises."""
    precision = MODES["half_master_static"](torch.device("meta"))
    module = nn.Linear(3, 2, device="meta")
    precision.cast(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    inputs = torch.ones(4, 3, device="meta", dtype=torch.float16)
    for _ in range(2):
        precision.step(module(inputs).sum(), optimizer, 0.25)
    dynamic = HalfMaster(torch.device("meta"))
    dynamic.pairs = {}
    with pytest.raises(RuntimeError, match="meta"):
        dynamic.step(module(inputs).sum(), torch.optim.SGD(module.parameters(), lr=0.1), 0.25)


@pytest.mark.parametrize("mode", ["half_master", "bf16_master"])
def test_weights_without_a_gradient_stay(mode: str) -> None:
    precision = mode_on_cpu(mode)
    modules = nn.ModuleList([one_weight(1.0), one_weight(1.0)])
    precision.cast(modules)
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.25)
    precision.step(modules[0].weight.float().sum(), optimizer, None)
    assert [module.weight.item() for module in modules] == [0.75, 1.0]


def test_tf32_is_off_unless_it_is_asked_for() -> None:
    for mode in ("tf32", "fp32", "tf32", "torch_default", "amp"):
        MODES[mode](CPU)
        flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        assert flags == (mode == "tf32", mode in ("tf32", "torch_default"))
    MODES["fp32"](CPU)


@pytest.mark.parametrize(
    ("mode", "dtype", "low", "high"),
    [
        ("fp32", "float32", 1e-8, 1e-6),
        ("amp", "float16", 1e-4, 1e-3),
        ("bf16", "bfloat16", 1e-3, 1e-2),
    ],
)
def test_the_probe_shows_the_arithmetic(mode: str, dtype: str, low: float, high: float) -> None:
    seen = probe(MODES[mode](CPU))
    assert seen.dtype == dtype
    assert low < seen.matmul_error < high
    assert (0 < seen.convolution_error < 1e-6) is (mode == "fp32")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", [network, lambda: one_weight(1.0)])
def test_what_ran_is_what_was_asked_but_for_tf32(mode: str, model: Any) -> None:
    """Also for a model without batch normalisation, all of whose weights are fp16 in both half modes."""
    precision = MODES[mode](CPU)
    module = model()
    precision.cast(module)
    dtypes = {str(parameter.dtype).removeprefix("torch."): parameter.numel() for parameter in module.parameters()}
    assert ran(dtypes, probe(precision), precision) == {"tf32": "fp32", "torch_default": "fp32"}.get(mode, mode)


def test_what_ran_does_not_believe_the_mode() -> None:
    fp32: dict[str, int] = {"float32": 5}
    plain = Precision(CPU)
    assert ran(fp32, Probed("float32", 3e-4), plain) == "tf32"
    assert ran(fp32, Probed("float32", 2e-7, 2e-5), plain) == "fp32"  # Winograd's algorithm
    assert ran(fp32, Probed("float32", 2e-7, 3e-4), plain) == "torch_default"
    assert ran({}, Probed("float32", 2e-7), plain) == "fp32"  # a workload without a model
    assert ran(fp32, Probed("float32", 2e-7), HalfMaster(CPU)) == "fp32"  # nothing was cast


def test_every_mode_trains_a_network() -> None:
    for mode, kind in MODES.items():
        torch.manual_seed(0)
        precision = kind(CPU)
        model = network()
        precision.cast(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        images: Tensor = torch.randn(8, 3, 4, 4)
        images = images.to(precision.input_dtype) if precision.input_dtype else images
        losses = []
        for _ in range(30):
            with precision.context():
                loss = F.cross_entropy(model(images), torch.arange(8) % 2)
                precision.step(loss, optimizer, None)
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0], mode


@pytest.mark.parametrize(("mode", "tries"), [("fp32", False), ("tf32", True), ("amp", True)])
def test_the_autotuner_stays_off_in_true_fp32(mode: str, tries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not tries)
    bench_on(Recording(), precision=mode).autotune()
    assert torch.backends.cudnn.benchmark is tries
