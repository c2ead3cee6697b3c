"""The 3D-UNet suite: the network against a functional reference, patches and blocks by hand, each entry on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launching import Places, run
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench
from milabench_ng.datasets.volumes.cremi import CLEFTS, RAW, Cremi, Volume
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Loss, Ready, Skips
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models.saved_weights import restored
from milabench_ng.workloads.models.unet3d import UNet3d, check_sides
from milabench_ng.workloads.unet3d.blocks import Blocks, Patches, normalised
from milabench_ng.workloads.unet3d.unet3d_infer import WithoutHalo

h5py = pytest.importorskip("h5py", reason="the extra volumes is not installed")
WORKLOADS = builtin_workloads()
PROFILE = json.loads((Path(__file__).parents[2] / "profiles" / "unet3d.json").read_text())
SMALL = {
    "unet3d_train": {"depth": 16, "height": 32, "width": 32},
    "unet3d_infer": {
        "block_depth": 16,
        "block_height": 16,
        "block_width": 32,
        "halo_depth": 0,
        "halo_height": 8,
        "halo_width": 0,
    },
}
SLOW = ("half", "amp")
"""Modes in which a CPU takes a minute for a step of the network, so that a narrow one takes its place."""


BROKEN = ("unet3d_train", "bf16")
"""On a CPU, torch 2.15 now and then leaves uninitialised memory in the bf16 gradient of a Conv3d's weight (128 to 256
channels, 2 x 4 x 4 voxels): a second step may not have a finite loss."""


@pytest.fixture
def ramp(tmp_path: Path) -> Volume:
    """A volume without labels whose voxels are numbered."""
    with h5py.File(tmp_path / "ramp.hdf", "w") as file:
        file[RAW] = np.arange(1, 5 * 6 * 7 + 1, dtype=np.uint8).reshape(5, 6, 7)
    return Volume(tmp_path / "ramp.hdf", False, lambda raw, foreground: (raw, foreground))


def functional(weights: dict[str, Tensor], volume: Tensor) -> Tensor:
    """The network, written down: two convolutions a level, four levels down, and up again."""

    def both(block: str, features: Tensor) -> Tensor:
        for layer in ("0", "2"):
            name = f"{block}.{layer}"
            features = F.relu(F.conv3d(features, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1))
        return features

    def up(number: int, features: Tensor) -> Tensor:
        return F.conv_transpose3d(features, weights[f"up.{number}.weight"], weights[f"up.{number}.bias"], stride=2)

    a = both("encoder.0", volume)
    b = both("encoder.1", F.max_pool3d(a, 2))
    c = both("encoder.2", F.max_pool3d(b, 2))
    d = both("encoder.3", F.max_pool3d(c, 2))
    e = both("encoder.4", F.max_pool3d(d, 2))
    d = both("decoder.0", torch.cat([up(0, e), d], 1))
    c = both("decoder.1", torch.cat([up(1, d), c], 1))
    b = both("decoder.2", torch.cat([up(2, c), b], 1))
    a = both("decoder.3", torch.cat([up(3, b), a], 1))
    return F.conv3d(a, weights["out.weight"], weights["out.bias"])


def test_parameters() -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in UNet3d().parameters()) == 22_575_329


def test_the_network_is_its_functional_form() -> None:
    torch.manual_seed(0)
    model = UNet3d()
    volume = torch.randn(2, 1, 16, 32, 16)
    with torch.no_grad():
        found, expected = model(volume), functional(model.state_dict(), volume)
    assert found.shape == volume.shape
    assert torch.allclose(found, expected, atol=1e-5, rtol=1e-5)


def adam_by_hand(weights: dict[str, Tensor], loss: Tensor, rate: float) -> dict[str, Tensor]:
    """The first step (Kingma and Ba, arXiv:1412.6980): with the corrected moments g and g^2, rate g / (|g| + 1e-8)."""
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return {
        name: weight.detach() - rate * gradient / (gradient.abs() + 1e-8)
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
    }


def test_a_training_step_is_that_of_the_functional_form(place: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same weights, same patch: the same loss to 1e-5, and the same weights wherever the gradient is not rounding."""
    seen: list[tuple[UNet3d, dict[str, Tensor], Tensor]] = []

    class Watched(UNet3d):
        def forward(self, volume: Tensor) -> Tensor:
            weights = {name: value.detach().clone().requires_grad_() for name, value in self.named_parameters()}
            seen.append((self, weights, volume))
            return super().forward(volume)

    targets: list[Tensor] = []
    entropy = F.binary_cross_entropy_with_logits
    monkeypatch.setattr("milabench_ng.workloads.unet3d.unet3d_train.UNet3d", Watched)
    monkeypatch.setattr(
        F,
        "binary_cross_entropy_with_logits",
        lambda logits, target: (targets.append(target), entropy(logits, target))[1],
    )
    channel = run(WORKLOADS["unet3d_train"], 1, place, learning_rate=1e-3, **SMALL["unet3d_train"])
    ((model, weights, volume),), (target,) = seen, targets
    logits = functional(weights, volume)
    loss = (torch.log1p(torch.exp(-logits.abs())) + logits.clamp(min=0) - logits * target).mean()
    assert channel.one(Loss).value == pytest.approx(loss.item(), rel=1e-5)
    for name, expected in adam_by_hand(weights, loss, 1e-3).items():
        found = dict(model.named_parameters())[name].detach()
        assert (found - weights[name]).abs().max() <= 1e-3 * (1 + 1e-4)
        assert (found - expected).abs().median() < 1e-5, name


@pytest.mark.parametrize(("side", "near"), [(20, "16 or 32"), (8, "16"), (63, "48 or 64")])
def test_sides_that_the_network_cannot_halve(side: int, near: str) -> None:
    check_sides({"--depth": 16, "--height": 48})
    with pytest.raises(InputError, match=f"--width is {side} voxels; .* a multiple of 16: choose {near}$"):
        check_sides({"--depth": 16, "--width": side})


def test_the_sides_of_a_block_are_those_with_its_halo(place: Places) -> None:
    with pytest.raises(InputError, match="--block-depth with twice --halo-depth is 40 voxels"):
        run(WORKLOADS["unet3d_infer"], 1, place, **SMALL["unet3d_infer"] | {"block_depth": 32, "halo_depth": 4})


@pytest.mark.parametrize(("name", "option"), [("unet3d_train", "height"), ("unet3d_infer", "block_height")])
def test_a_volume_that_is_smaller_than_a_patch(place: Places, name: str, option: str) -> None:
    flag = f"--{option.replace('_', '-')} 528: the volume in .* has 64 x 512 x 512 voxels. Use at most 512"
    with pytest.raises(InputError, match=flag):
        run(WORKLOADS[name], 1, place, **SMALL[name] | {option: 528})


def test_normalised_by_hand() -> None:
    """2, 4 and 9 have mean 5 and variance 26 / 3."""
    deviation = math.sqrt(26 / 3) + 1e-6
    found = normalised(np.asarray([[[2, 4, 9]]], np.uint8))
    assert found.dtype == np.float32
    assert found.flatten().tolist() == pytest.approx([-3 / deviation, -1 / deviation, 4 / deviation], rel=1e-6)
    assert normalised(np.full((2, 2, 2), 7, np.uint8)).tolist() == np.zeros((2, 2, 2)).tolist()


def test_patches_lie_anywhere_and_have_targets_of_their_own(place: Places) -> None:
    volume = Cremi().open(place("cremi"))
    assert isinstance(volume, Volume)
    patches = Patches(volume, {"depth": 16, "height": 32, "width": 32})
    assert len(patches) == 64 * 512 * 512 // (16 * 32 * 32)
    corners = list(patches.corners(torch.Generator().manual_seed(1)))
    assert len(corners) == len(patches)
    assert corners == list(patches.corners(torch.Generator().manual_seed(1)))
    assert {corner[0] for corner in corners} == set(range(49))
    assert max(corners, key=lambda corner: corner[1])[1] > 470
    with h5py.File(place("cremi") / "sample_A_20160501.hdf") as file:
        labels = file[CLEFTS][:]
    inside = next(map(tuple, np.argwhere(labels[:48, :480, :480] != 2**64 - 1).tolist()))
    raw, target = patches[inside]
    assert raw.shape == target.shape == (1, 16, 32, 32)
    assert raw.mean().item() == pytest.approx(0, abs=1e-4)
    assert target[0, 0, 0, 0] == 1
    assert set(target.unique().tolist()) <= {0.0, 1.0}


def test_blocks_have_their_halo_and_zeros_outside_of_the_volume(ramp: Volume) -> None:
    blocks = Blocks(ramp, {"block_depth": 2, "block_height": 4, "block_width": 7}, {"d": 1, "h": 2, "w": 0})
    assert blocks.corners == [(0, 0, 0), (0, 4, 0), (2, 0, 0), (2, 4, 0), (4, 0, 0), (4, 4, 0)]
    raw, _ = ramp[:, :, :]
    around = np.pad(raw, ((1, 2), (2, 4), (0, 0)))
    for index, (depth, height, _) in enumerate(blocks.corners):
        expected = normalised(around[depth : depth + 4, height : height + 8])[None]
        assert np.array_equal(blocks[index].numpy(), expected), index


def test_loader_processes_read_what_this_process_reads(place: Places) -> None:
    volume = Cremi().open(place("cremi"))
    assert isinstance(volume, Volume)
    patches = Patches(volume, {"depth": 16, "height": 32, "width": 32})
    seen = []
    for workers in (0, 2):
        bench = bench_on(Recording(last=4), data_set=Cremi(), data_path=place("cremi"), workers=workers)
        batches = bench.loader(2, samples=patches, order=patches.corners)
        seen.append([[part.clone() for part in batch] for batch in bench.measure(batches)])
    assert len(seen[0]) == 4
    for alone, together in zip(*seen, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


class Shifted(nn.Module):
    """A convolution that sees two voxels far."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(1, 1, 5, padding=2, bias=False)

    def forward(self, volume: Tensor) -> Tensor:
        return self.convolution(volume)  # type: ignore[no-any-return]


def test_blocks_without_their_halo_are_the_whole_volume(ramp: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a halo as wide as the network sees, the blocks of a convolution are those of the volume in one piece."""
    monkeypatch.setattr("milabench_ng.workloads.unet3d.blocks.normalised", lambda raw: raw.astype(np.float32))
    torch.manual_seed(0)
    network = Shifted()
    blocks = Blocks(ramp, {"block_depth": 2, "block_height": 3, "block_width": 7}, {"d": 2, "h": 2, "w": 2})
    trimmed = WithoutHalo(network, blocks.block, blocks.halo)
    raw, _ = ramp[:, :, :]
    with torch.no_grad():
        whole = network(torch.from_numpy(raw.astype(np.float32))[None, None])[0, 0]
        for index, (depth, height, width) in enumerate(blocks.corners):
            found = trimmed(blocks[index][None])
            assert found.shape == (1, 1, 2, 3, 7)
            expected = whole[depth : depth + 2, height : height + 3, width : width + 7]
            inside = found[0, 0, : len(expected)]  # the last block reaches out of the volume
            assert torch.allclose(inside, expected, atol=1e-3)


def test_the_halo_is_cut_where_the_copies_say(place: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device or on the host: the same output, digest and type; as published, all of it is copied."""
    monkeypatch.setattr("milabench_ng.workloads.models.unet3d.FEATURES", (2, 4, 8, 16, 32))
    copied: list[tuple[int, ...]] = []
    copy = Tensor.cpu

    def watched(tensor: Tensor) -> Tensor:
        copied.append(tuple(tensor.shape))
        return copy(tensor)

    monkeypatch.setattr(Tensor, "cpu", watched)
    seen = {}
    for copies in ("original", "lean"):
        copied.clear()
        channel = run(WORKLOADS["unet3d_infer"], 1, place, **SMALL["unet3d_infer"], copies=copies)
        seen[copies] = channel.losses
        assert ((1, 1, 16, 32, 32) in copied) is (copies == "original")
    assert seen["original"] == seen["lean"]


def test_blocks_are_page_locked_only_for_lean_copies(place: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    loader = Bench.loader

    def watched(bench: Bench, *given: Any, pin_memory: bool, **named: Any) -> Any:
        asked.append(pin_memory)
        return loader(bench, *given, pin_memory=pin_memory, **named)

    monkeypatch.setattr(Bench, "loader", watched)
    monkeypatch.setattr("milabench_ng.workloads.models.unet3d.FEATURES", (2, 4, 8, 16, 32))
    for copies in ("original", "lean"):
        run(WORKLOADS["unet3d_infer"], 1, place, **SMALL["unet3d_infer"], copies=copies)
    assert asked == [False, True]


def test_rates_in_the_units_of_the_suite() -> None:
    """At one iteration and one block a second: 48 x 384 x 384 voxels, and 64 x 512 x 512 with 28.1 % of them net."""
    described = {name: WORKLOADS[name].describe(name, "") for name in SMALL}
    seen = {}
    for name, rate in {"unet3d_train": 48 * 384 * 384, "unet3d_infer": 64 * 512 * 512}.items():
        options = {option.name: option.default for option in described[name].options}
        seen[name] = {derived.unit: derived.of(rate, options) for derived in described[name].derived}
    assert seen["unet3d_train"] == {"s/iter": 1.0, "MVox/s": 7.077888}
    assert seen["unet3d_infer"] == {"MVox/s": 16.777216, "MVox/s net": pytest.approx(32 * 384 * 384 / 1e6)}
    train = described["unet3d_train"]
    options = {option.name: option.default for option in train.options} | {"batch_size": 4}
    assert train.derived[0].of(48 * 384 * 384, options) == 4.0


@pytest.mark.slow
@pytest.mark.parametrize("entry", PROFILE)
def test_each_entry_of_the_profile_runs(entry: str, place: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small: the loss is finite, also in half, and what ran is what the entry says."""
    name, arguments = PROFILE[entry]["workload"], PROFILE[entry]["arguments"]
    precision = arguments["precision"]
    options = {option: value for option, value in arguments.items() if option != "precision"} | SMALL[name]
    if precision in SLOW:
        monkeypatch.setattr("milabench_ng.workloads.models.unet3d.FEATURES", (2, 4, 8, 16, 32))
    steps = 1 if (name, precision) == BROKEN else 3
    channel = run(WORKLOADS[name], steps, place, precision=precision, **options)
    assert channel.one(Ready).parameters == (88_439 if precision in SLOW else 22_575_329)
    assert channel.one(Done).ran == {"tf32": "fp32"}.get(precision, precision)
    voxels = 16 * 32 * 32
    assert channel.one(Done).count == steps * voxels
    losses = channel.losses
    assert len(losses) == min(steps, 2)
    assert all(value is not None and math.isfinite(value) for value in losses)
    if name == "unet3d_train" and precision not in SLOW:
        assert losses[0] == pytest.approx(math.log(2), rel=0.1)
    assert all(event.skipped == 0 for event in channel.all(Skips))


@pytest.mark.slow
def test_batches_count_all_their_patches_and_the_network_learns(place: Places) -> None:
    channel = run(WORKLOADS["unet3d_train"], 5, place, batch_size=2, **SMALL["unet3d_train"])
    assert channel.one(Done).count == 5 * 2 * 16 * 32 * 32
    losses = channel.losses
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def test_arrays_elsewhere_in_the_file(tmp_path: Path) -> None:
    """Of a file of one's own, whose background is 0."""
    with h5py.File(tmp_path / "own.hdf", "w") as file:
        file["em"] = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
        file["cells/ids"] = np.array([0, 0, 0, 5, 0, 0, 0, 7], dtype=np.uint8).reshape(2, 2, 2)
    volume = Volume(tmp_path / "own.hdf", True, lambda raw, foreground: (raw, foreground)).at("em", "cells/ids")
    raw, foreground = volume[slice(0, 2), slice(1, 2), slice(0, 2)]
    assert volume.shape == (2, 2, 2)
    assert raw.tolist() == [[[2, 3]], [[6, 7]]]
    assert foreground.tolist() == [[[False, True]], [[False, True]]]
    with pytest.raises(InputError, match="there is no labels with three dimensions; expected em and labels"):
        Volume(tmp_path / "own.hdf", True, lambda *both: both).at("em", "labels").shape  # noqa: B018


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
def test_saved_weights_are_restored(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    saved = nn.Linear(2, 3)
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors.torch").save_file(saved.state_dict(), tmp_path / name)
    else:
        torch.save(saved.state_dict(), tmp_path / name)
    assert torch.equal(restored(nn.Linear(2, 3), str(tmp_path / name)).weight, saved.weight)
    with pytest.raises(InputError, match="not the weights of this network"):
        restored(nn.Linear(2, 4), str(tmp_path / name))
    with pytest.raises(InputError, match=r"--checkpoint .*none.pt"):
        restored(saved, str(tmp_path / "none.pt"))


def test_a_whole_pickled_network_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 3), tmp_path / "model.pt")
    with pytest.raises(InputError, match="not the weights of this network"):
        restored(nn.Linear(2, 3), str(tmp_path / "model.pt"))
