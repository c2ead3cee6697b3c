"""Networks for pictures learn, answer and count, in every precision and from every source."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from launching import Places, Spy, run
from recording import Recording, bench_on
from torch import Tensor
from torch.nn import functional as F
from torchvision.models import resnet50

from milabench_ng.bench import Bench
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Loss, Ready, Slice
from milabench_ng.model.memory_classes import REACHES
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import parse_bytes
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.cv.picture_feed import STEP, NoisePool, PictureFeed
from milabench_ng.workloads.models.picture_networks import Classifier, Detector, Segmenter, network

WORKLOADS = builtin_workloads()
HEAVY = ("convnext_base", "efficientnet_v2_m", "swin_b", "vgg16", "vit_b_16")
"""A training step of these takes seconds on a CPU; they are asked only."""
MODES = ("fp32", "torch_default", "amp")
"""Of all networks in the profile."""
SMALL = {"batch_size": 2, "width": 64, "height": 64}


def launch(
    name: str, steps: int = 1, place: Places | None = None, **given: Any
) -> tuple[Recording, list[float], list[Any]]:
    """The channel, the losses and the outputs of ``steps`` steps."""
    spy, outputs = Spy(), list[Any]()

    def watch(bench: Bench) -> None:
        spy.watch(bench)
        infer = bench.infer
        bench.infer = lambda model, *inputs: outputs.append(infer(model, *inputs))  # type: ignore[method-assign]

    channel = run(WORKLOADS[name], steps, place, watch, **SMALL | given)
    return channel, spy.losses, outputs


@pytest.mark.parametrize("arch", [name for name in (*get_args(Classifier), *get_args(Segmenter)) if name not in HEAVY])
def test_training(arch: str) -> None:
    channel, losses, _ = launch("cv_train", 2, arch=arch, width=96)
    assert channel.one(Done).count == 4
    expected = math.log(2) if arch in get_args(Segmenter) else 500 * math.log(1000)  # targets of 1/2 on average
    assert losses == pytest.approx([expected] * 2, rel=0.2)


@pytest.mark.parametrize("arch", get_args(Classifier))
def test_asking_a_classifier(arch: str) -> None:
    channel, _, [logits] = launch("cv_infer", arch=arch, batch_size=1)
    assert logits.shape == (1, 1000)
    assert channel.one(Done).count == 1
    assert channel.all(Loss)[0].value == pytest.approx(float(logits.abs().mean()))


@pytest.mark.parametrize(("arch", "boxes"), [("ssd300_vgg16", 200), ("fasterrcnn_resnet50_fpn_v2", 100)])
def test_asking_a_detector(arch: str, boxes: int) -> None:
    channel, _, [found] = launch("cv_infer", arch=arch, batch_size=1, width=96)
    assert channel.one(Done).count == 1
    for each in found:
        assert set(each) == {"boxes", "labels", "scores"}
        assert each["boxes"].shape == (len(each["scores"]), 4)
        assert len(each["scores"]) <= boxes
        assert (each["boxes"][:, 2] <= 96).all()
        assert (each["boxes"][:, 3] <= 64).all()
    assert len(found) == 1


@pytest.mark.parametrize("channels_last", [False, True])
def test_two_steps_are_those_of_plain_torch(channels_last: bool) -> None:
    _, losses, _ = launch("cv_train", 2, arch="resnet50", width=96, channels_last=channels_last)
    assert losses == pytest.approx(plain_losses(), rel=1e-5)


def plain_losses() -> list[float]:
    """Two steps of ResNet-50 as one would write them; the second on the tenant's own random numbers."""
    torch.manual_seed(1234)
    model = resnet50()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5)
    losses = []
    for seed in (None, 1234 + (1 << 30)):
        if seed is not None:
            torch.manual_seed(seed)
        logits = model(torch.rand(2, 3, 64, 96))
        log_probabilities = logits - logits.exp().sum(1, keepdim=True).log()
        loss = -(torch.rand(2, 1000) * log_probabilities).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_tenants_share_the_first_step_and_no_other() -> None:
    first, other = (launch("cv_train", 2, arch="mobilenet_v3_large", tenant=tenant)[1] for tenant in (0, 1))
    assert first[0] == other[0]
    assert first[1] != other[1]


@pytest.mark.parametrize("precision", ["bf16", "amp", "half"])
def test_training_in_low_precision_stays_finite(precision: str) -> None:
    channel, losses, _ = launch("cv_train", 4, arch="mobilenet_v3_large", precision=precision)
    assert channel.one(Ready).ran == channel.one(Done).ran == precision
    assert all(map(math.isfinite, losses))


def test_half_answers_in_half() -> None:
    channel, _, [logits] = launch("cv_infer", arch="mobilenet_v3_large", precision="half")
    assert channel.one(Ready).dtypes == {"float16": 5_483_032}
    assert logits.dtype is torch.float32
    assert torch.equal(logits, logits.half().float())


def test_pictures_from_memory_through_loader_processes() -> None:
    channel, losses, _ = launch("cv_train", 3, arch="mobilenet_v3_large", source="memory", workers=1)
    assert [entry.count for entry in channel.all(Slice)] == [2] * 3
    assert all(map(math.isfinite, losses))


def test_pictures_from_files(place: Places) -> None:
    given = {"arch": "mobilenet_v3_large", "source": "loader", "width": 96}
    channel, _, outputs = launch("cv_infer", 2, place, **given)
    assert channel.one(Done).count == 4
    assert not torch.equal(*outputs)


def test_the_data_set_is_read_only_if_it_is_the_source() -> None:
    for name in ("cv_train", "cv_infer"):
        described = WORKLOADS[name].describe(name, "tests 1")
        assert [described.data_set({"source": each}) for each in ("resident", "memory", "loader")] == [
            *(None, None),
            "imagenet",
        ]


def test_noise_is_cut_from_the_pool_at_a_place_that_follows_from_the_number() -> None:
    pool, same, other = NoisePool(4, 6, 1), NoisePool(4, 6, 1), NoisePool(4, 6, 2)
    assert pool[7].shape == (3, 4, 6)
    assert torch.equal(pool[7], same[7])
    assert not torch.equal(pool[7], other[7])
    flat = torch.cat([pool[0].flatten(), pool[1].flatten()])
    assert flat.float().mean() == pytest.approx(127.5, abs=35)
    assert pool[3].untyped_storage().data_ptr() == pool[0].untyped_storage().data_ptr()  # cut, not copied
    assert pool[3].storage_offset() == 3 * STEP


@pytest.mark.parametrize("channels_last", [False, True])
def test_bytes_become_numbers_from_0_to_1_in_the_models_type_and_format(channels_last: bool) -> None:
    bench: Bench = bench_on(Recording())
    feed = PictureFeed(bench, "memory", (2, 4, 6), torch.float16, channels_last)
    batch = torch.randint(256, (2, 3, 4, 6), dtype=torch.uint8)
    ready = feed.ready(batch)
    assert ready.dtype is torch.float16
    assert ready.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.allclose(ready.float(), batch / 255, atol=1e-3)
    assert feed.ready(ready).data_ptr() == ready.data_ptr()  # a resident batch is made ready once


def test_the_profile_names_every_network_in_three_precisions_with_one_batch_size_each() -> None:
    tests = read_profile(profile_file(Path("cv"))).tests
    batches: dict[tuple[str, str], set[str]] = {}
    for name, test in tests.items():
        given = test.arguments
        assert name.startswith(f"{test.workload}_{given['arch']}_{given['precision']}")
        if "source" not in given:
            batches.setdefault((test.workload, str(given["arch"])), set()).add(str(given["batch_size"]))
    everything = {("cv_train", arch) for arch in (*get_args(Classifier), *get_args(Segmenter))} | {
        ("cv_infer", arch) for arch in (*get_args(Classifier), *get_args(Detector))
    }
    assert set(batches) == everything | {("cv_train_ddp", "resnet50")}
    assert {f"{workload}_{arch}_{mode}" for workload, arch in everything for mode in MODES} <= set(tests)
    assert all(len(sizes) == 1 for sizes in batches.values())


LARGEST_TENSOR = 2**31 - 1
"""Elements; beyond, cuDNN splits or refuses."""


@pytest.mark.parametrize("arch", [*get_args(Classifier), *get_args(Segmenter)])
def test_the_batches_of_training_fill_the_memory_of_their_class_in_fp32(arch: str) -> None:
    """By the tensors that training saves, counted on the meta device, and three of the largest on the way back."""
    parameters, saved, largest = bytes_of(arch)
    batches = read_profile(profile_file(Path("cv"))).tests[f"cv_train_{arch}_fp32"].arguments["batch_size"]
    assert isinstance(batches, dict)
    for name, batch in batches.items():
        smallest = REACHES * parse_bytes(name, "class")
        needed = 4 * parameters + batch * (saved + 3 * largest)
        assert needed <= 0.9 * smallest
        assert needed >= 0.7 * smallest or batch * largest / 4 > 0.95 * LARGEST_TENSOR or batch <= 24
        assert batch * largest / 4 <= LARGEST_TENSOR


def bytes_of(arch: Any) -> tuple[int, float, float]:
    """Those of all parameters, and of what a picture adds: what training saves, and its largest tensor.

    The matrices of attention are left out, since fused kernels never make them.
    """
    with torch.device("meta"):
        model = network(arch, 224, 224)
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        matrix = tensor.dim() == 4 and tensor.shape[-1] == tensor.shape[-2] == 197
        if tensor.untyped_storage()._cdata not in own and not matrix:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.rand(2, 3, 224, 224, device="meta"))
    sizes = [tensor.untyped_storage().nbytes() for tensor in kept.values()]
    return sum(each.numel() * 4 for each in model.parameters()), sum(sizes) / 2, max(sizes) / 2


def test_the_autotuner_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", not asked)
        launch("cv_train", arch="mobilenet_v3_large", autotune=asked)
        assert torch.backends.cudnn.benchmark is asked


def test_ssd300_suppresses_as_many_boxes_as_a_trained_network() -> None:
    """Of noise: with torchvision's least score, 36,000."""
    torch.manual_seed(1234)
    model = network("ssd300_vgg16", 224, 224).eval()
    seen: list[Tensor] = []
    model.postprocess_detections = lambda heads, *_: seen.append(heads["cls_logits"].softmax(-1)) or []
    with torch.inference_mode():
        model([torch.rand(3, 224, 224)])
    assert 500 < int((seen[0][..., 1:] > model.score_thresh).sum()) < 2000


@pytest.mark.slow
def test_ranks_train_one_network(ranks: dict[str, list[Any]]) -> None:
    """Each on pictures of its own; the averaged gradients keep their weights equal."""
    first, second = ranks["pictures"]
    assert first["count"] == second["count"] == 4
    assert first["losses"][0] == second["losses"][0]  # the first batch is that of all
    assert first["losses"][1] != second["losses"][1]
    assert first["weights"] == second["weights"]


def test_detectors_are_not_compiled() -> None:
    with pytest.raises(InputError, match="ssd300_vgg16 --compile: shapes inside a detector depend"):
        launch("cv_infer", arch="ssd300_vgg16", compile=True)


def test_the_loss_over_one_channel_has_a_gradient() -> None:
    """Cross entropy over a single class, which the published benchmark takes for its U-Net, has none."""
    logits = torch.randn(2, 1, 4, 4, requires_grad=True)
    targets = torch.rand(2, 1, 4, 4)
    F.cross_entropy(logits, targets).backward()
    assert logits.grad is not None
    assert not logits.grad.any()
    _, losses, _ = launch("cv_train", 3, arch="unet_resnet50")
    assert len(set(losses)) == 3
