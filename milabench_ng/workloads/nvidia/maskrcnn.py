"""Mask R-CNN as NVIDIA's example trains it."""

from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import FrozenBatchNorm2d

from milabench_ng.bench import Bench, Count, Derived, FromZero, workload
from milabench_ng.datasets.images.coco import Coco, Outlined
from milabench_ng.workloads.models.ssd_boxes import CLASSES
from milabench_ng.workloads.nvidia.mask_pictures import OneOrientation, with_masks
from milabench_ng.workloads.nvidia.weight_decay import decayed

BRANCH_SCALE = 0.25
"""Of the last frozen normalisation in each residual branch. With 1, which trained statistics would make up for, random
weights let the picture grow until fp16 overflows."""
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
Side = Annotated[int, Meta(ge=32)]


PROPOSALS = 4_000
"""Of a batch, in training: those of the highest scores, whichever picture they are of."""
ENOUGH = 10_000
"""More than torchvision's proposals of a picture: 2,000 of each of five levels."""


class ProposalsOfBatch(RegionProposalNetwork):  # type: ignore[misc]  # torchvision has no types
    """Keeps the best proposals of the whole batch in training, as the example does, not of each picture."""

    def filter_proposals(self, *given: Any) -> tuple[list[Tensor], list[Tensor]]:
        """Boxes and scores of each picture."""
        boxes, scores = super().filter_proposals(*given)
        if not self.training:
            return boxes, scores
        everything = torch.cat(scores)
        kept = torch.zeros_like(everything, dtype=torch.bool)
        kept[everything.topk(min(PROPOSALS, len(everything))).indices] = True
        masks = torch.split(kept, [len(each) for each in scores])
        return (
            [box[mask] for box, mask in zip(boxes, masks, strict=True)],
            [score[mask] for score, mask in zip(scores, masks, strict=True)],
        )


class OneCanvas(GeneralizedRCNNTransform):  # type: ignore[misc]  # torchvision has no types
    """Puts every batch on a canvas of one size, lying or upright, instead of that of its largest picture."""

    def max_by_axis(self, the_list: list[list[int]]) -> list[int]:
        """Channels, height and width of the canvas for pictures of these shapes."""
        channels, height, width = the_list[0]
        short, long = self.min_size[0], self.max_size
        return [channels, long, short] if height > width else [channels, short, long]


def network(short_side: int, long_side: int) -> MaskRCNN:
    """Mask R-CNN with a ResNet-50 and a feature pyramid, 81 classes, random weights; stem and first stage are frozen.

    As in the example, which trains on the best 4,000 proposals of a batch; torchvision's own has 2,000 of a picture.
    """
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    for name, module in backbone.named_modules():
        if name.endswith("bn3"):
            nn.init.constant_(module.weight, BRANCH_SCALE)
    model = MaskRCNN(backbone, CLASSES, rpn_post_nms_top_n_train=ENOUGH)
    model.rpn.__class__ = ProposalsOfBatch
    model.transform = OneCanvas(short_side, long_side, MEAN, DEVIATION)
    return model


@workload(
    unit="images",
    data=Coco,
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    derived=(Derived("ms/step", "1000 * batch_size / rate"),),
)
def maskrcnn(
    bench: Bench,
    *,
    batch_size: Count = 4,
    short_side: Side = 800,
    long_side: Side = 1333,
    learning_rate: FromZero = 0.0,
    momentum: FromZero = 0.9,
    weight_decay: FromZero = 1e-4,
) -> None:
    """Train Mask R-CNN on COCO (He et al., arXiv:1703.06870): bound by the GPU, and by the host between its kernels.

    NVIDIA's example in Lambda's benchmark: torchvision's network over a ResNet-50 with a feature pyramid, frozen batch
    normalisation, random weights; boxes, masks and classes of the best 4,000 proposals of a batch, at most 512 of a
    picture; SGD with momentum. Loader processes decode the pictures and draw the masks; the device resizes them.

    There a batch is as large as its largest picture. Here every batch is of lying or of upright pictures, on a canvas
    of 1344 x 800 or 800 x 1344 pixels, so that all have the same work but for the number of objects.

    An item is one picture. Timed: the wait for the loader processes, copy, forward, loss, backward, step.

    Options:
        batch_size: pictures per step.
        short_side: pixels to which the shorter side of a picture is resized.
        long_side: most pixels of the longer side.
        learning_rate: of SGD; 0, as there, leaves the weights as they are, at the same cost.
        momentum: of SGD.
        weight_decay: of SGD, for weights of more than one dimension.
    """
    pictures = Outlined(bench.data(), with_masks)
    model = bench.place(network(short_side, long_side))
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.SGD(decayed(model, weight_decay), lr=learning_rate, momentum=momentum)
    forward = bench.spread(model)
    order = OneOrientation(pictures.upright, batch_size)
    batches = bench.loader(batch_size, samples=pictures, order=order, collate=list)
    for batch in bench.measure(batches, count=batch_size):
        losses = forward([picture.to(dtype) / 255 for picture, _ in batch], [target for _, target in batch])
        bench.step(sum(losses.values()), optimizer)
