"""The NVIDIA examples of pictures and speech: each entry of the profile in small, on the CPU."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import Places, run
from torch import Tensor

from milabench_ng.bench import Bench
from milabench_ng.bench.precision import AMP
from milabench_ng.model.events import Done, Loss, Ready, Skips
from milabench_ng.model.memory_classes import DeviceMemory, choose_entries
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import GIB
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models import wave_glow
from milabench_ng.workloads.nvidia.ssd_resnet50 import noise

WORKLOADS = builtin_workloads()
SMALL: dict[str, dict[str, Any]] = {
    "ssd_resnet50": {"batch_size": 2},
    "resnet50": {"batch_size": 2},
    "maskrcnn": {"batch_size": 1, "short_side": 32, "long_side": 64},
    "tacotron2": {"batch_size": 3, "frames": 10, "letters": 12},
    "waveglow": {"batch_size": 1},
}
PARAMETERS = {
    "resnet50": 25_557_032,
    "maskrcnn": 44_347_573,
    "tacotron2": 28_193_153,
}
"""Those of WaveGlow and SSD300 are counted in the tests of the networks: here they are small ones."""
ITEMS = {"ssd_resnet50": 2, "resnet50": 2, "maskrcnn": 1, "tacotron2": 30, "waveglow": 8_000}
PROFILE = {
    name: test for name, test in read_profile(profile_file(Path("lambda"))).tests.items() if test.workload in SMALL
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """WaveGlow with 4 channels instead of 512, which take a CPU half a minute, and SSD300 over a short ResNet."""
    monkeypatch.setattr(wave_glow, "WIDTH", 4)
    monkeypatch.setattr("milabench_ng.workloads.nvidia.ssd_resnet50.RESNET", (1, 1, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("entry", PROFILE)
def test_each_entry_runs(entry: str, place: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments = PROFILE[entry].workload, PROFILE[entry].arguments
    precision = arguments["precision"]
    if precision == "amp":  # convolutions in fp16 take a CPU minutes; the loss scale stays
        monkeypatch.setattr(AMP, "context", lambda _self: nullcontext())
    own = {option.name for option in WORKLOADS[name].own_options} - {"batch_size"}
    given = {key: value for key, value in arguments.items() if key in own}
    channel = run(WORKLOADS[name], 1, place, precision=precision, **SMALL[name] | given)
    if name in PARAMETERS:
        assert channel.one(Ready).parameters == PARAMETERS[name]
    assert channel.one(Done).ran == {"tf32": "fp32", "amp": "fp32"}.get(precision, precision)
    assert channel.one(Done).count == ITEMS[name]
    value = channel.one(Loss).value
    assert value is not None
    assert math.isfinite(value)
    assert all(event.skipped == 0 for event in channel.all(Skips))


def test_entries_are_in_all_precisions_with_the_batches_of_the_published_runs() -> None:
    modes = ("fp32", "tf32", "amp", "bf16")
    names = {
        f"{example}_{mode}" for example in ("ssd", "resnet50", "maskrcnn", "tacotron2", "waveglow") for mode in modes
    }
    jobs = {name for name in PROFILE if name.endswith("_ddp")}
    assert set(PROFILE) == names | jobs | {"ssd_amp_loader", "resnet50_amp_loader"}
    published = {  # full, and mixed precision: 16, 80 and 140 GB
        "ssd": ([48, 256, 512], [96, 448, 896]),
        "resnet50": ([128, 640, 1280], [256, 1280, 2560]),
        "maskrcnn": ([4, 48, 96], [8, 64, 128]),
        "tacotron2": ([48, 256, 512], [48, 256, 512]),
        "waveglow": ([8, 32, 64], [8, 48, 96]),
    }
    smaller = {  # where ours needs more memory
        "maskrcnn_amp": [8, 64, 96],
        "maskrcnn_bf16": [8, 64, 96],
        "tacotron2_bf16": [44, 256, 448],
    }
    small = {"ssd_amp_loader": [64] * 3, "resnet50_amp_loader": [256] * 3}  # loaders hand large ones over in bursts
    for entry, test in PROFILE.items():
        example, mode = entry.split("_")[:2]
        arguments = {"batch_size": test.arguments["batch_size"]}
        sizes = [
            choose_entries(arguments, DeviceMemory(device="", bytes=memory * GIB), entry)[0]["batch_size"]
            for memory in (16, 80, 140)
        ]
        assert sizes == (smaller | small).get(
            entry.removesuffix("_ddp"), published[example][mode in ("amp", "bf16")]
        ), entry
        assert test.arguments["precision"] == mode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given", "to"),
    [
        ("resnet50", {"learning_rate": 0.01}, 0.7),
        ("ssd_resnet50", {"learning_rate": 1e-3}, 0.99),
        ("maskrcnn", {"learning_rate": 1e-2}, 0.95),
        ("tacotron2", {"learning_rate": 1e-3}, 0.99),
    ],
)
def test_losses_fall(name: str, given: Any, to: float, place: Places) -> None:
    """On a fixed batch; Mask R-CNN on two pictures, which are about as hard in a twin of this scale."""
    first, last = run(WORKLOADS[name], 2, lambda data: place(data, 0.0003), **SMALL[name], **given).losses
    assert first is not None
    assert last is not None
    assert last < to * first


@pytest.mark.slow
def test_by_default_the_weights_of_most_stay_as_they_are(place: Places) -> None:
    """As in the published runs; of ResNet-50 they do not."""
    rates = {name: {option.name: option.default for option in WORKLOADS[name].own_options} for name in SMALL}
    assert {name for name, options in rates.items() if options["learning_rate"]} == {"resnet50"}
    seen: list[list[Tensor]] = []

    def watch(bench: Bench) -> None:
        step = bench.step

        def compare(loss: Tensor, optimizer: torch.optim.Optimizer, **options: Any) -> None:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            before = [weight.detach().clone() for weight in weights]
            step(loss, optimizer, **options)
            seen.append([weight for weight, old in zip(weights, before, strict=True) if not torch.equal(weight, old)])

        bench.step = compare  # type: ignore[method-assign]

    run(WORKLOADS["tacotron2"], 2, place, watch, **SMALL["tacotron2"])
    assert seen == [[], []]


def test_rates_in_the_units_of_the_suite() -> None:
    """A100, TF32: 231,379 samples of audio a second are 28.9 segments; one of a mel frame lasts 256 / 22,050 s."""
    found = {name: {each.unit: each for each in WORKLOADS[name].derived} for name in SMALL}
    audio = {unit: each.of(231_379, {"batch_size": 32}) for unit, each in found["waveglow"].items()}
    assert audio == pytest.approx({"segments/s": 28.922, "x real time": 10.4934, "ms/step": 1106.41}, rel=1e-4)
    assert found["tacotron2"]["x real time"].of(22_050, {}) == 256
    for name in ("ssd_resnet50", "resnet50", "maskrcnn"):
        assert found[name]["ms/step"].of(500, {"batch_size": 100}) == 200


def test_noise_has_targets_like_a_picture() -> None:
    torch.manual_seed(0)
    pictures, offsets, classes = noise(3)
    assert (pictures.shape, offsets.shape, classes.shape) == ((3, 3, 300, 300), (3, 4, 8732), (3, 8732))
    assert ((classes > 0).sum(1) >= 7).all()
    assert torch.isfinite(offsets).all()
