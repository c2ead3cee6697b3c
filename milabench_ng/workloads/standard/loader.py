"""The input pipeline alone: read, decode, augment, copy to the device."""

from milabench_ng.bench import Bench, Count, Legacy2020, workload
from milabench_ng.datasets.images.imagenet import ImageNet


@workload(
    unit="images",
    data=ImageNet,
    bound="cpu",
    ram_gib=7.0,
    legacy_2020=(Legacy2020(experiment="milarun.models.loader:main"),),
)
def loader(bench: Bench, *, batch_size: Count = 256) -> None:
    """Load ImageNet as a training job does, without a model: bound by JPEG decoding, then by the disk.

    Random crop and flip to 224 x 224, normalised. An item is one image. Timed: the wait for the loader processes and
    the copy to the device. (2020 synchronised after each batch; here the copies of two batches may overlap.)

    Options:
        batch_size: images per batch.
    """
    for _ in bench.measure(bench.loader(batch_size)):
        pass
