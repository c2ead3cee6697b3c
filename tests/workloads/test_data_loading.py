"""The data-loading study: loss and augmentation against references, the ring, each entry of the profile in small."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from recording import Recording, bench_on
from scipy import ndimage
from torch import Tensor

from milabench_ng.datasets.prepare import prepare
from milabench_ng.datasets.spectra.hyperspectral import HsiRaw, HsiRaw16, HsiRaw32, Hyperspectral
from milabench_ng.datasets.spectra.scenes import CLASSES
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Ready
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.io.augmentation import Affine, Change, changed, draw_change
from milabench_ng.workloads.io.hsi_segmentation import SMOOTH, masked_loss, network
from milabench_ng.workloads.io.hyperspectral_feed import STORED, Strategy, batches_of, feed, threads_each
from milabench_ng.workloads.io.ring_buffer import RingBuffer

pytest.importorskip("blosc2", reason="the extra hyperspectral is not installed")
pytest.importorskip("segmentation_models_pytorch", reason="the extra hyperspectral is not installed")
WORKLOAD = builtin_workloads()["hsi_segmentation"]
PROFILE = json.loads((Path(__file__).parents[2] / "profiles" / "io.json").read_text())
CPU = torch.device("cpu")


class Raw(HsiRaw):
    """Five small images."""

    shape, images = (32, 64, 100), 5


class Raw32(HsiRaw32):
    """The same, compressed."""

    shape, images = (32, 64, 100), 5


class Raw16(HsiRaw16):
    """The same, rounded and compressed."""

    shape, images = (32, 64, 100), 5


TenantPlaces = dict[str, tuple[Hyperspectral, Path]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> TenantPlaces:
    """Each form of the images, by name, and where it lies."""
    root = tmp_path_factory.mktemp("data")
    return {form.name: (form(), prepare(form(), root, 1, lambda *_: None, 1).path) for form in (Raw, Raw32, Raw16)}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of one layer: in fp16, a CPU takes seconds for a step of the U-Net."""
    monkeypatch.setattr(
        "milabench_ng.workloads.io.hsi_segmentation.network", lambda: torch.nn.Conv2d(100, CLASSES, kernel_size=1)
    )


def bench_for(places: TenantPlaces, strategy: str, channel: Recording, **given: Any) -> Any:
    data_set, place = places[STORED.sets[strategy]]
    return bench_on(channel, data_set=data_set, data_path=place, **given)


def train(places: TenantPlaces, strategy: str, steps: int = 2, threads: int = 0, **given: Any) -> Recording:
    channel = Recording(last=steps)
    WORKLOAD(bench_for(places, strategy, channel, **given), strategy=strategy, batch_size=2, threads=threads)
    return channel


def test_parameters() -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in network().parameters()) == 31_260_515


def test_the_loss_is_that_of_a_loop_over_pixels() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 3, 5))  # class 3 is absent
    valid = torch.rand(2, 3, 5) < 0.7
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0])
    entropy, pixels = 0.0, 0
    shared, found, wanted = ([0.0] * 4 for _ in range(3))
    for image, row, column in np.argwhere(valid.numpy()).tolist():
        powers = [math.exp(value) for value in logits[image, :, row, column].tolist()]
        label = int(labels[image, row, column])
        entropy -= float(weights[label]) * math.log(powers[label] / sum(powers))
        pixels += 1
        wanted[label] += 1
        for each in range(4):
            found[each] += powers[each] / sum(powers)
        shared[label] += powers[label] / sum(powers)
    dice = [(2 * shared[each] + SMOOTH) / (found[each] + wanted[each] + SMOOTH) for each in range(3)]
    expected = (entropy / pixels + 1 - sum(dice) / 3) / 2
    assert masked_loss(logits, labels, valid, weights).item() == pytest.approx(expected, rel=1e-6)


def test_pixels_that_are_not_valid_do_not_count() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 19, 4, 4, requires_grad=True)
    labels, valid = torch.randint(0, 19, (1, 4, 4)), torch.zeros(1, 4, 4, dtype=torch.bool)
    valid[0, 0, :2] = True
    masked_loss(logits, labels, valid, torch.ones(19)).backward()
    assert logits.grad is not None
    assert logits.grad[..., 0, :2].abs().min() > 0
    assert not logits.grad[..., 1:, :].any()
    nothing = masked_loss(logits, labels, torch.zeros_like(valid), torch.ones(19))
    assert nothing.item() == 0.5  # no entropy, and no class whose Dice coefficient would count


def by_scipy(affine: Affine, plane: Any, order: int) -> Any:
    """The affine change in pixels, by SciPy: the value of each pixel comes from A (pixel - centre) + centre + shift."""
    height, width = plane.shape
    cosine, sine = math.cos(affine.radians) / affine.scale, math.sin(affine.radians) / affine.scale
    matrix = np.array([[cosine, sine], [-sine, cosine]])
    centre = np.array([height - 1, width - 1]) / 2
    shift = np.array([affine.down * height, affine.right * width])
    return ndimage.affine_transform(plane, matrix, centre - matrix @ centre + shift, order=order, mode="reflect")


@pytest.mark.parametrize("shape", [(24, 32), (32, 24)])
def test_the_affine_change_is_that_of_scipy(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    features = torch.rand(*shape, 3)
    labels = torch.randint(0, 19, shape)
    valid = torch.rand(shape) < 0.7
    affine = Affine(radians=0.6, scale=1.07, down=0.05, right=-0.03)
    moved, classes, kept = changed(Change(affine, False, False), features, labels, valid)
    assert (moved.shape, moved.dtype, classes.dtype, kept.dtype) == (
        (*shape, 3),
        torch.float32,
        torch.int64,
        torch.bool,
    )
    for channel in range(3):
        expected = by_scipy(affine, features[..., channel].numpy(), order=1)
        assert np.allclose(moved[..., channel].numpy(), expected, atol=1e-4)
    for found, before in ((classes, labels), (kept, valid)):
        expected = by_scipy(affine, before.numpy().astype(np.float64), order=0)
        assert (found.numpy() == expected).mean() > 0.99  # at the border between two pixels, either is the nearest


def test_nothing_is_moved_without_turn_scale_and_shift() -> None:
    features, labels = torch.rand(8, 6, 2), torch.randint(0, 19, (8, 6))
    stay = Change(Affine(radians=0.0, scale=1.0, down=0.0, right=0.0), False, False)
    moved, classes, _ = changed(stay, features, labels, labels > 3)
    assert torch.allclose(moved, features, atol=1e-5)
    assert torch.equal(classes, labels)


def test_mirroring_and_upending() -> None:
    features, labels = torch.rand(4, 6, 2), torch.randint(0, 19, (4, 6))
    valid = labels > 5
    for mirror, upend in ((True, False), (False, True), (True, True)):
        parts = changed(Change(None, mirror, upend), features, labels, valid)
        for found, before in zip(parts, (features, labels, valid), strict=True):
            expected = before.numpy()[:: -1 if upend else 1, :: -1 if mirror else 1]
            assert np.array_equal(found.numpy(), expected)


def test_half_precision_is_computed_in_fp32_and_kept() -> None:
    features, labels = torch.rand(8, 8, 2).half(), torch.zeros(8, 8, dtype=torch.int64)
    change = Change(Affine(radians=0.3, scale=0.95, down=0.01, right=0.02), True, False)
    halved = changed(change, features, labels, labels > 0)[0]
    assert halved.dtype is torch.float16
    assert torch.equal(halved, changed(change, features.float(), labels, labels > 0)[0].half())


def test_changes_are_as_likely_as_the_study_says() -> None:
    torch.manual_seed(0)
    drawn = [draw_change() for _ in range(2000)]
    affines = [each.affine for each in drawn if each.affine]
    for chosen in (affines, [each for each in drawn if each.mirror], [each for each in drawn if each.upend]):
        assert len(chosen) == pytest.approx(1000, abs=100)
    assert max(abs(each.radians) for each in affines) == pytest.approx(math.pi / 4, rel=0.01)
    assert min(each.scale for each in affines) == pytest.approx(0.9, abs=0.01)
    assert max(each.scale for each in affines) == pytest.approx(1.1, abs=0.01)
    assert max(abs(each.down) for each in affines) == pytest.approx(1 / 16, rel=0.02)
    assert max(abs(each.right) for each in affines) == pytest.approx(1 / 16, rel=0.02)


def ring_of(processes: int = 0) -> RingBuffer:
    return RingBuffer([((2, 3), torch.float32), ((2,), torch.int64)], processes, CPU)


def test_a_slot_is_not_handed_out_while_it_is_in_use() -> None:
    """A writer asks for more slots than there are: each of its batches waits until an earlier one has been released."""
    ring = ring_of()
    written: list[int] = []

    def slots() -> Iterator[int]:
        for number in range(20):
            slot = ring.fill(lambda parts, value=number: parts[0].fill_(value))  # type: ignore[misc]
            written.append(slot)
            yield slot

    held: list[tuple[int, Tensor]] = []
    for number, (features, _) in enumerate(ring.batches(slots(), lambda parts: parts)):
        held = [*held[-1:], (number, features)]
        for value, batch in held:  # the last batch and the one before are still in use
            assert (batch == value).all()
    assert written == [number % ring.depth for number in range(20)]


def test_a_writer_waits_for_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = ring_of()
    filled = [ring.fill(lambda _: None) for _ in range(ring.depth)]
    waits: list[int] = []

    def look(read: Sequence[int], *_: Any) -> tuple[Sequence[int], list[int], list[int]]:
        """Nothing is free twice; then the first slot is."""
        waits.append(len(waits))
        if len(waits) < 3:
            return [], [], []
        ring._release(filled[0])
        return read, [], []

    monkeypatch.setattr("milabench_ng.workloads.io.ring_buffer.select.select", look)
    assert ring.fill(lambda _: None) == filled[0]
    assert len(waits) == 3


def test_each_process_has_slots_of_its_own_and_all_share_them() -> None:
    ring = ring_of(processes=2)
    assert ring.depth == 3
    assert [tuple(tensor.shape) for tensor in ring.tensors] == [(6, 2, 3), (6, 2)]
    assert ring.bytes == 6 * (2 * 3 * 4 + 2 * 8)
    child = os.fork()
    if child == 0:
        ring.tensors[0][5].fill_(7.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (ring.tensors[0][5] == 7.0).all()
    ring.close()


def test_a_ring_larger_than_the_tenants_ram_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNB_RAM_BYTES", "100")
    with pytest.raises(InputError, match="4 batches of 40 B are 160 B of page-locked memory, and the tenant's"):
        ring_of()


def test_epochs_are_cut_into_batches_of_one_size() -> None:
    batches = list(batches_of(2, 5)(torch.Generator().manual_seed(1)))
    assert [len(batch) for batch in batches] == [2] * 5
    numbers = [number for batch in batches for number in batch]
    assert sorted(numbers[:5]) == sorted(numbers[5:]) == [*range(5)]
    assert numbers[:5] != numbers[5:]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_ring_hands_over_what_the_loader_does(places: TenantPlaces, workers: int) -> None:
    """The same images in the same order, as far as the order depends on the seed alone; later ones are intact."""
    seen: dict[str, list[list[Tensor]]] = {}
    for strategy in ("gpu_aug", "ring_buffer"):
        bench = bench_for(places, strategy, Recording(last=8), workers=workers)
        with feed(bench, strategy, 2, keep_cached=False) as batches:  # type: ignore[arg-type]
            seen[strategy] = [[part.clone() for part in batch] for batch in bench.measure(batches, count=2)]
    loaded, ringed = seen.values()
    assert all(torch.equal(one, other) for one, other in zip(loaded[0], ringed[0], strict=True))
    data_set, place = places["hsi-raw16"]
    known = {values.tobytes() for values, _ in data_set.open(place)}  # type: ignore[attr-defined]
    assert {features.numpy().tobytes() for batch in ringed for features in batch[0]} <= known
    assert [tuple(part.shape) for part in ringed[0]] == [(2, 32, 64, 100), (2, 32, 64), (2, 32, 64)]


def test_each_strategy_reads_the_form_it_names() -> None:
    described = WORKLOAD.describe("hsi_segmentation", "tests 1")
    read = [described.data_set({"strategy": strategy}) for strategy in get_args(Strategy)]
    assert read == ["hsi-raw", "hsi-raw32", "hsi-raw16", "hsi-raw16", "hsi-raw16"]


def test_strategies_of_one_augmentation_train_alike(places: TenantPlaces, narrow: None) -> None:  # noqa: ARG001
    """The same images and random numbers: only the way to the device differs."""
    assert train(places, "original").losses == train(places, "blosc").losses
    assert train(places, "gpu_aug").losses == train(places, "ring_buffer").losses


@pytest.mark.parametrize(
    ("cpus", "workers", "threads"),
    [(16, 2, 8), (16, 6, 2), (48, 2, 8), (4, 6, 1), (12, 5, 2), (3, 0, 1)],
)
def test_the_cpus_of_the_tenant_decompress(
    cpus: int, workers: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the study, whose two processes had all cores; at most eight a process, and no more than there are CPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    assert threads_each(bench_on(Recording(last=1), workers=workers)) == threads


def test_the_record_says_how_many_threads_decompress(places: TenantPlaces, narrow: None) -> None:  # noqa: ARG001
    own = len(os.sched_getaffinity(0))
    original, ring = (train(places, strategy, 1, workers=1).one(Done) for strategy in ("original", "ring_buffer"))
    assert "decompression" not in original.kernels
    assert ring.kernels["decompression"] == f"{min(8, own)} threads a process"
    channel = train(places, "blosc", 1, workers=1, threads=3)
    assert channel.one(Done).kernels["decompression"] == "3 threads a process"
    assert WORKLOAD.describe("hsi_segmentation", "tests 1").pace_only == ("threads",)


def test_an_epoch_of_the_study_in_seconds() -> None:
    described = WORKLOAD.describe("hsi_segmentation", "tests 1")
    assert [(each.unit, each.of(12.642, {})) for each in described.derived] == [
        ("s/epoch", pytest.approx(58.534, 1e-4))
    ]


@pytest.mark.parametrize("entry", [name for name in PROFILE if name.endswith("_unlimited")])
def test_each_strategy_of_the_profile_runs(entry: str, places: TenantPlaces, narrow: None) -> None:  # noqa: ARG001
    """In small, through a loader process and in the profile's precision: the loss is finite, all images count."""
    arguments = PROFILE[entry]["arguments"]
    channel = train(places, arguments["strategy"], steps=3, workers=1, precision=arguments["precision"])
    assert channel.one(Done).ran == "amp"
    assert channel.one(Done).count == 6
    assert all(loss is not None and math.isfinite(loss) for loss in channel.losses)


def test_the_network_trains(places: TenantPlaces) -> None:
    channel = train(places, "ring_buffer", steps=2)
    assert channel.one(Ready).parameters == 31_260_515
    assert all(loss is not None and math.isfinite(loss) for loss in channel.losses)


def test_the_profile_has_each_strategy_with_and_without_a_limit() -> None:
    assert len(PROFILE) == 10
    for strategy in get_args(Strategy):
        free, limited = PROFILE[f"{strategy}_unlimited"], PROFILE[f"{strategy}_1000mib"]
        assert free == {key: value for key, value in limited.items() if key != "io"}
        assert limited["io"] == {"read": "1000 MiB/s"}
        assert free["arguments"]["strategy"] == strategy
        assert free["arguments"]["workers"] == (2 if strategy == "ring_buffer" else 6)
