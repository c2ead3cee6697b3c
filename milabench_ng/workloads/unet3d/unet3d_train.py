"""Training a 3D-UNet on patches of an electron micrograph."""

import math

import torch
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Derived, FromZero, workload
from milabench_ng.datasets.volumes.cremi import CLEFTS, RAW, Cremi
from milabench_ng.workloads.models.unet3d import UNet3d, check_sides
from milabench_ng.workloads.unet3d.blocks import Patches


def whole_halves(*, depth: int, height: int, width: int) -> None:
    """Raise InputError unless the network can halve the patches."""
    check_sides({"--depth": depth, "--height": height, "--width": width})


@workload(
    unit="voxels",
    most_items="batch_size * depth * height * width",
    data=Cremi,
    bound="gpu-compute",
    requires=("h5py",),
    extra="volumes",
    auto_batch=True,
    formerly={"raw": RAW, "labels": CLEFTS},
    derived=(Derived("s/iter", "depth * height * width * batch_size / rate"), Derived("MVox/s", "rate / 1e6")),
    fits=whole_halves,
)
def unet3d_train(
    bench: Bench,
    *,
    depth: Count = 48,
    height: Count = 384,
    width: Count = 384,
    batch_size: Count = 1,
    learning_rate: FromZero = 1e-3,
    raw: str = RAW,
    labels: str = CLEFTS,
) -> None:
    """Train a 3D-UNet to find synaptic clefts (EMBL's 3D-UNet benchmark): bound by the GPU, if fed.

    Cicek et al., arXiv:1606.06650; 22,575,329 parameters, no normalisation layers. Binary cross entropy with logits;
    Adam in its fused form. Patches lie anywhere in the volume. An item is one voxel of a patch.

    Timed: the wait for the loader processes, which decompress raw and labels of each patch and normalise it, copy,
    forward, backward, step. (The published figures leave out the wait.) In pure fp16 (`half`) gradients vanish, so that
    nothing can be learnt: with a learning rate of 0 the loss stays finite, at the same cost.

    Options:
        depth: sections of a patch, a multiple of 16.
        height: rows of a patch, a multiple of 16.
        width: columns of a patch, a multiple of 16.
        batch_size: patches per step.
        learning_rate: of Adam; 0 leaves the weights as they are.
        raw: where the voxels are in the HDF5 file.
        labels: where their labels are, of the same shape; elsewhere than CREMI's, 0 is no object.
    """
    sides = {"depth": depth, "height": height, "width": width}
    patches = Patches(bench.data().at(raw, labels), sides)
    model = bench.place(UNet3d())
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    batches = bench.loader(batch_size, samples=patches, order=patches.corners)
    for voxels, foreground in bench.measure(batches, count=batch_size * math.prod(patches.sides)):
        bench.step(F.binary_cross_entropy_with_logits(model(voxels), foreground), optimizer)
