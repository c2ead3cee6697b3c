"""SSD's default boxes, matching, mining, loss and crops against counts by hand and independent formulas."""

from __future__ import annotations

import math

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.ops import box_convert, box_iou

from milabench_ng.workloads.models import ssd_pictures
from milabench_ng.workloads.models.ssd300 import SSD300
from milabench_ng.workloads.models.ssd_boxes import Matcher, default_boxes, hardest, multibox_loss

DEFAULTS = 8732


def test_default_boxes() -> None:
    boxes = default_boxes()
    assert boxes.shape == (38 * 38 * 4 + 19 * 19 * 6 + 10 * 10 * 6 + 5 * 5 * 6 + 3 * 3 * 4 + 4, 4) == (DEFAULTS, 4)
    # Level 0: cells of 8 pixels, sides 21 and sqrt(21 * 45), then 1 : 2 and 2 : 1. Shape by shape, row by row.
    cells = 38 * 38
    assert torch.allclose(boxes[0] * 300, torch.tensor([4.0, 4.0, 21.0, 21.0]))
    assert torch.allclose(boxes[1] * 300, torch.tensor([12.0, 4.0, 21.0, 21.0]))
    assert torch.allclose(boxes[38] * 300, torch.tensor([4.0, 12.0, 21.0, 21.0]))
    assert torch.allclose(boxes[cells, 2:] * 300, torch.tensor([math.sqrt(945)] * 2))
    assert torch.allclose(boxes[2 * cells, 2:] * 300, torch.tensor([21 * math.sqrt(2), 21 / math.sqrt(2)]))
    assert torch.allclose(boxes[3 * cells, 2:] * 300, torch.tensor([21 / math.sqrt(2), 21 * math.sqrt(2)]))
    # Level 1 begins after them: cells of 16 pixels, sides 45; its fifth shape is 3 : 1.
    assert torch.allclose(boxes[4 * cells] * 300, torch.tensor([8.0, 8.0, 45.0, 45.0]))
    assert torch.allclose(boxes[4 * cells + 4 * 361, 2:] * 300, torch.tensor([45 * math.sqrt(3), 45 / math.sqrt(3)]))
    # The last level: one cell in the middle; sides 261 and sqrt(261 * 315), the wide ones cut to the picture.
    assert torch.allclose(boxes[-4] * 300, torch.tensor([150.0, 150.0, 261.0, 261.0]))
    assert torch.allclose(boxes[-2] * 300, torch.tensor([150.0, 150.0, 300.0, 261 / math.sqrt(2)]))


def test_a_box_that_lies_on_a_default_box_has_no_offset() -> None:
    matcher = Matcher()
    target = 4 * 1444 + 361 * 3 + 9 * 19 + 9  # a box of level 1, in the middle
    offsets, classes = matcher(matcher.corners[target : target + 1], torch.tensor([17]))
    assert offsets.shape == (4, DEFAULTS)
    assert classes[target] == 17
    assert torch.allclose(offsets[:, target], torch.zeros(4), atol=1e-4)


def test_offsets_by_hand() -> None:
    """The default box -4 has its centre at 0.5 and sides of 0.87; the object's centre is at 0.6, its sides are 0.6."""
    offsets, classes = Matcher()(torch.tensor([[0.3, 0.3, 0.9, 0.9]]), torch.tensor([5]))
    shift, shrink = 10 * 0.1 / 0.87, 5 * math.log(0.6 / 0.87)
    assert torch.allclose(offsets[:, -4], torch.tensor([shift, shift, shrink, shrink]), atol=1e-4)
    assert set(classes.tolist()) == {0, 5}


def boxes_of(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centre, size = torch.rand(2, count, 2, generator=generator)
    return box_convert(torch.cat((0.2 + 0.6 * centre, 0.02 + 0.3 * size), 1), "cxcywh", "xyxy")


@pytest.mark.parametrize("seed", range(3))
def test_matching_against_its_definition(seed: int) -> None:
    matcher = Matcher()
    corners, labels = boxes_of(5, seed), torch.arange(1, 6)
    _, classes = matcher(corners, labels)
    overlap = box_iou(corners, box_convert(default_boxes(), "cxcywh", "xyxy"))
    expected = torch.zeros(DEFAULTS, dtype=torch.long)
    for default in range(DEFAULTS):
        best = int(overlap[:, default].argmax())
        if overlap[best, default] > 0.5:
            expected[default] = labels[best]
    for one in range(5):
        expected[overlap[one].argmax()] = labels[one]
    assert torch.equal(classes, expected)
    assert set(labels.tolist()) <= set(classes.tolist())  # each has a default box, however small it is


def test_the_hardest_are_the_largest() -> None:
    losses = torch.tensor([[0.5, 3.0, 1.0, 2.0], [4.0, 1.0, 2.0, 3.0]])
    assert hardest(losses, torch.tensor([2, 1])).tolist() == [[False, True, False, True], [True, False, False, False]]
    assert hardest(losses, torch.tensor([0, 9])).tolist() == [[False] * 4, [True] * 4]


def test_the_loss_against_a_loop() -> None:
    """Per picture: all positives, and of the others the three times as many with the largest cross entropy."""
    generator = torch.Generator().manual_seed(0)
    places, offsets = torch.randn(2, 3, 4, 40, generator=generator)
    scores = torch.randn(3, 81, 40, generator=generator)
    classes = torch.zeros(3, 40, dtype=torch.long)
    classes[0, [3, 7]] = torch.tensor([5, 80])
    classes[1, :20] = 1  # three times 20 are more than there are
    expected = 0.0  # the third picture shows nothing
    for picture in range(2):
        positive = [box for box in range(40) if classes[picture, box] > 0]
        entropy = [F.cross_entropy(scores[picture, :, box], classes[picture, box]).item() for box in range(40)]
        negative = sorted((entropy[box] for box in range(40) if box not in positive), reverse=True)
        total = sum(entropy[box] for box in positive) + sum(negative[: 3 * len(positive)])
        for box in positive:
            difference = (places[picture, :, box] - offsets[picture, :, box]).abs()
            total += sum(0.5 * d * d if d < 1 else d - 0.5 for d in difference.tolist())
        expected += total / len(positive) / 3
    assert multibox_loss(places, scores, offsets, classes).item() == pytest.approx(expected, rel=1e-5)


def test_outputs_are_in_the_order_of_the_default_boxes() -> None:
    """One score is raised in one cell of one level by a bias; it comes out at that level's boxes alone."""
    torch.manual_seed(0)
    model = SSD300(ResNet(BasicBlock, [1, 1, 1, 1])).eval()
    for head in (*model.places, *model.scores):
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
    model.scores[1].bias.data[7 * 6 + 2] = 1.0  # level 1, class 7, third shape: outputs are class by class
    with torch.no_grad():
        places, scores = model(torch.rand(1, 3, 300, 300))
    assert (places.shape, scores.shape) == ((1, 4, DEFAULTS), (1, 81, DEFAULTS))
    raised = scores[0, 7].nonzero().flatten()
    assert scores.count_nonzero() == len(raised) == 361
    shapes = default_boxes()[raised, 2:] * 300
    assert torch.allclose(shapes, torch.tensor([45 * math.sqrt(2), 45 / math.sqrt(2)]).expand(361, 2))


def test_over_resnet_50_it_has_the_parameters_of_the_published_one() -> None:
    """As NVIDIA's SSD300 v1.1: batch normalisation in the five blocks, and 38 x 38 cells on the first level."""
    with torch.device("meta"):
        model = SSD300(ResNet(Bottleneck, [3, 4, 6, 3]), torch.nn.BatchNorm2d)
        places, scores = model(torch.empty(2, 3, 300, 300))
    assert sum(weight.numel() for weight in model.parameters()) == 22_894_902
    assert sum(weight.numel() for weight in model.backbone.parameters()) == 8_543_296
    assert (places.shape, scores.shape) == ((2, 4, DEFAULTS), (2, 81, DEFAULTS))


def test_crops_keep_boxes_whose_centre_they_hold() -> None:
    part = torch.tensor([0.2, 0.0, 0.7, 0.5])
    corners = torch.tensor([[0.1, 0.1, 0.5, 0.3], [0.6, 0.4, 1.0, 0.8]])
    assert ssd_pictures.centres_within(corners, part).tolist() == [True, False]
    seen = ssd_pictures.seen_from(corners[:1], part)
    assert torch.allclose(seen, torch.tensor([[0.0, 0.2, 0.6, 0.6]]))
    assert torch.allclose(ssd_pictures.mirrored(seen), torch.tensor([[0.4, 0.2, 1.0, 0.6]]))
    picture = ssd_pictures.cut(Image.new("RGB", (200, 100)), part)
    assert picture.size == (100, 50)


def test_crops_in_general() -> None:
    torch.manual_seed(0)
    picture = Image.new("RGB", (320, 240))
    corners, labels = boxes_of(4, 1), torch.tensor([4, 5, 6, 7])
    made = [ssd_pictures.crop(picture, corners, labels) for _ in range(200)]
    whole = sum(one.size == (320, 240) for one, _, _ in made)
    assert 20 < whole < 180
    for cropped, kept, names in made:
        width, height = cropped.size
        assert width >= 95
        assert height >= 71
        assert len(kept) == len(names) > 0
        assert kept.min() >= 0
        assert kept.max() <= 1
        assert (kept[:, 2:] > kept[:, :2]).all()


def test_a_picture_that_cannot_be_cropped_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssd_pictures, "LEAST_OVERLAPS", (1.1,))  # no part overlaps by more than all
    torch.manual_seed(0)
    picture = Image.new("RGB", (32, 32))
    corners, labels = boxes_of(3, 0), torch.tensor([1, 2, 3])
    assert ssd_pictures.crop(picture, corners, labels) == (picture, corners, labels)


def test_what_a_loader_process_makes() -> None:
    torch.manual_seed(0)
    pixels, offsets, classes = ssd_pictures.Augment()(
        Image.new("RGB", (320, 240), (124, 116, 104)), boxes_of(2, 3), torch.tensor([9, 10])
    )
    assert (pixels.shape, offsets.shape, classes.shape) == ((3, 300, 300), (4, DEFAULTS), (DEFAULTS,))
    assert pixels.abs().max() < 3
    assert torch.isfinite(offsets).all()
    assert set(classes.tolist()) <= {0, 9, 10}
