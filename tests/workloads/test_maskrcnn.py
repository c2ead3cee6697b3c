"""Mask R-CNN: the network as published, one canvas for all pictures, masks and their order by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from milabench_ng.workloads.nvidia import mask_pictures
from milabench_ng.workloads.nvidia.mask_pictures import OneOrientation
from milabench_ng.workloads.nvidia.maskrcnn import DEVIATION, MEAN, OneCanvas, network
from milabench_ng.workloads.nvidia.weight_decay import decayed


def test_the_network_is_as_large_as_torchvision_says_with_ten_classes_less() -> None:
    """44,401,393 with 91 classes; of a class: scores, boxes and a mask."""
    with torch.device("meta"):
        model = network(800, 1333)
    assert sum(weight.numel() for weight in model.parameters()) == 44_401_393 - 10 * (5 * 1_025 + 257)
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert {name.removeprefix("backbone.body.").partition(".")[0] for name in frozen} == {"conv1", "layer1"}
    assert sum(weight.numel() for group in decayed(model, 1.0) for weight in group["params"]) == 44_125_173


def test_random_weights_neither_let_the_picture_grow_nor_vanish() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        levels = network(64, 96).backbone(torch.randn(1, 3, 64, 96))
    for level in levels.values():
        assert 0.02 < level.square().mean().sqrt() < 5


def test_the_proposals_are_the_best_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As maskrcnn-benchmark selects them over all levels and pictures in training; a picture may have few."""
    monkeypatch.setattr("milabench_ng.workloads.nvidia.maskrcnn.PROPOSALS", 5)
    scores = [torch.tensor([0.9, 0.8, 0.2, 0.1]), torch.tensor([0.7, 0.6, 0.5])]
    boxes = [torch.arange(16.0).view(4, 4), 100 + torch.arange(12.0).view(3, 4)]
    monkeypatch.setattr(
        "torchvision.models.detection.rpn.RegionProposalNetwork.filter_proposals", lambda *_: (boxes, scores)
    )
    model = network(64, 96)
    kept, of = model.rpn.filter_proposals()
    assert [each.tolist() for each in of] == [pytest.approx([0.9, 0.8]), pytest.approx([0.7, 0.6, 0.5])]
    assert [each[:, 0].tolist() for each in kept] == [[0, 4], [100, 104, 108]]
    model.eval()
    assert model.rpn.filter_proposals() == (boxes, scores)


def test_the_network_trains_on_as_many_proposals_as_the_batch_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench_ng.workloads.nvidia.maskrcnn.PROPOSALS", 7)
    torch.manual_seed(0)
    model = network(64, 96)
    seen: list[int] = []
    sample = model.roi_heads.select_training_samples

    def count(proposals: list[torch.Tensor], targets: list[dict[str, torch.Tensor]]) -> object:
        seen.append(sum(map(len, proposals)))
        return sample(proposals, targets)

    model.roi_heads.select_training_samples = count
    target = {
        "boxes": torch.tensor([[8.0, 8.0, 40.0, 40.0]]),
        "labels": torch.tensor([3]),
        "masks": torch.ones(1, 64, 96, dtype=torch.uint8),
    }
    losses = model([torch.rand(3, 64, 96) for _ in range(2)], [dict(target) for _ in range(2)])
    assert seen == [7]
    assert all(torch.isfinite(loss) for loss in losses.values())


def test_vectors_do_not_decay() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Linear(2, 5))
    decaying, others = decayed(model, 0.1)
    assert [weight.dim() for weight in decaying["params"]] == [4, 2]
    assert [weight.dim() for weight in others["params"]] == [1] * 4
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)


@pytest.mark.parametrize(("sizes", "canvas"), [(((48, 64), (64, 64)), (64, 128)), (((64, 48), (90, 30)), (128, 64))])
def test_every_batch_lies_on_a_canvas_of_one_size(sizes: tuple[tuple[int, int], ...], canvas: tuple[int, int]) -> None:
    """Of 64 x 107 pixels, the shorter side first; both rounded up to multiples of 32."""
    batch, targets = OneCanvas(64, 107, MEAN, DEVIATION)(
        [torch.rand(3, *size) for size in sizes],
        [{"boxes": torch.tensor([[0.0, 0.0, 9.0, 9.0]]), "masks": torch.ones(1, *size)} for size in sizes],
    )
    assert batch.tensors.shape == (2, 3, *canvas)
    for size, inside, target in zip(sizes, batch.image_sizes, targets, strict=True):
        factor = min(64 / min(size), 107 / max(size))
        assert inside == tuple(int(side * factor) for side in size)
        assert target["boxes"][0, 2:].tolist() == pytest.approx([9 * factor] * 2, rel=0.02)
        assert target["masks"].shape == (1, *inside)


def test_a_mask_is_what_its_rings_enclose() -> None:
    square = np.asarray([[0.2, 0.1], [0.5, 0.1], [0.5, 0.6], [0.2, 0.6]], np.float32)
    corner = np.asarray([[0.8, 0.8], [1.0, 0.8], [1.0, 1.0]], np.float32)
    drawn = mask_pictures.mask([square, corner], (40, 20))
    assert (drawn.shape, drawn.dtype, set(drawn.flatten().tolist())) == ((20, 40), np.uint8, {0, 1})
    assert drawn[2:13, 8:21].all()
    assert drawn[:, :8].sum() == 0
    assert drawn[17, 38] == 1
    assert drawn[19, 32] == 0


def test_pictures_boxes_and_masks_are_mirrored_together() -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[2:12, 8:20] = 255
    outline = np.asarray([[8, 2], [19, 2], [19, 11], [8, 11]], np.float32) / np.asarray([32, 16], np.float32)
    corners = torch.tensor([[8 / 32, 2 / 16, 20 / 32, 12 / 16]])
    torch.manual_seed(0)
    seen = set()
    for _ in range(20):
        shown, target = mask_pictures.with_masks(Image.fromarray(pixels), corners, torch.tensor([7]), [[outline]])
        assert (shown.shape, shown.dtype, target["masks"].dtype) == ((3, 16, 32), torch.uint8, torch.uint8)
        assert torch.equal(shown[0] > 0, target["masks"][0] > 0)
        left, top, right, bottom = target["boxes"][0].round().int().tolist()
        assert target["masks"][0, top:bottom, left:right].all()
        assert target["masks"].sum() == (bottom - top) * (right - left)
        seen.add(left)
    assert seen == {8, 12}


def test_a_batch_has_pictures_of_one_orientation() -> None:
    upright = np.arange(50) % 3 == 0  # 17 of 50
    order = OneOrientation(upright, 4)
    epoch = list(order(torch.Generator().manual_seed(1)))
    assert len(epoch) == len(set(epoch)) == 4 * (17 // 4 + 33 // 4)
    kinds = upright[np.asarray(epoch)].reshape(-1, 4)
    assert (kinds == kinds[:, :1]).all()
    assert kinds[:, 0].sum() == 4
    assert epoch == list(order(torch.Generator().manual_seed(1)))
    assert epoch != list(order(torch.Generator().manual_seed(2)))
