"""Inference of a 3D-UNet over a whole electron micrograph, block by block."""

import math
from typing import Literal

from torch import Tensor, nn

from milabench_ng.bench import Bench, Count, Derived, WholeNumber, workload
from milabench_ng.datasets.volumes.cremi import RAW, Cremi
from milabench_ng.workloads.models.saved_weights import restored
from milabench_ng.workloads.models.unet3d import UNet3d, check_sides
from milabench_ng.workloads.unet3d.blocks import Blocks


class WithoutHalo(nn.Module):
    """A network of volumes that returns the middle of its output: the voxels that saw their surroundings."""

    def __init__(
        self, network: nn.Module, block: tuple[int, ...], halo: tuple[int, ...], *, cut_on_host: bool = False
    ) -> None:
        """``cut_on_host``: copy all of the output there first, in its own type."""
        super().__init__()
        self.network = network
        self.block, self.halo = block, halo
        self.cut_on_host = cut_on_host

    def forward(self, volume: Tensor) -> Tensor:
        """[N, C, D + 2 halo, H + 2 halo, W + 2 halo] to [N, C, D, H, W]."""
        output: Tensor = self.network(volume)
        if self.cut_on_host:
            output = output.cpu()
        for axis, (edge, side) in enumerate(zip(self.halo, self.block, strict=True), start=2):
            output = output.narrow(axis, edge, side)
        return output


def whole_halves(
    *, block_depth: int, block_height: int, block_width: int, halo_depth: int, halo_height: int, halo_width: int
) -> None:
    """Raise InputError unless the network can halve the blocks with their halos."""
    sides = {
        "depth": (block_depth, halo_depth),
        "height": (block_height, halo_height),
        "width": (block_width, halo_width),
    }
    check_sides({f"--block-{name} with twice --halo-{name}": own + 2 * edge for name, (own, edge) in sides.items()})


@workload(
    unit="voxels",
    most_items="(block_depth + 2 * halo_depth) * (block_height + 2 * halo_height) * (block_width + 2 * halo_width)",
    data=Cremi,
    bound="gpu-compute",
    requires=("h5py",),
    extra="volumes",
    formerly={"copies": "lean", "raw": RAW, "checkpoint": ""},
    derived=(
        Derived("MVox/s", "rate / 1e6"),
        Derived(
            "MVox/s net",
            "rate / 1e6 * block_depth / (block_depth + 2 * halo_depth)"
            " * block_height / (block_height + 2 * halo_height) * block_width / (block_width + 2 * halo_width)",
        ),
    ),
    fits=whole_halves,
)
def unet3d_infer(
    bench: Bench,
    *,
    block_depth: Count = 32,
    block_height: Count = 384,
    block_width: Count = 384,
    halo_depth: WholeNumber = 16,
    halo_height: WholeNumber = 64,
    halo_width: WholeNumber = 64,
    copies: Literal["original", "lean"] = "original",
    raw: str = RAW,
    checkpoint: str = "",
) -> None:
    """Find synaptic clefts in a volume, block by block (EMBL's 3D-UNet benchmark): bound by the GPU and by the copies.

    22,575,329 parameters, random weights. An item is one voxel of the network's input, halo included, as the published
    figures count (gross); each block also has a halo where it touches the border of the volume, of zeros. As there, the
    input is copied from pageable memory, and all of the output is copied back, where the halo is cut off. Timed: the
    wait for the loader processes, which decompress, pad and normalise the blocks, copy, forward, and the copy back.
    (The published figures leave out the wait.)

    Options:
        block_depth: sections of a block; with both halos a multiple of 16, like the other sides.
        block_height: rows of a block.
        block_width: columns of a block.
        halo_depth: sections around a block, on either side.
        halo_height: rows around a block.
        halo_width: columns around a block.
        copies: original: as above; lean: from page-locked memory, and only the block is copied back.
        raw: where the voxels are in the HDF5 file.
        checkpoint: file with the network's weights, safetensors or what torch.save made of its state_dict(); without
            one they are random.
    """
    block = {"block_depth": block_depth, "block_height": block_height, "block_width": block_width}
    halo = {"halo_depth": halo_depth, "halo_height": halo_height, "halo_width": halo_width}
    whole = [own + 2 * edge for own, edge in zip(block.values(), halo.values(), strict=True)]
    blocks = Blocks(bench.data(split="padded").at(raw), block, halo)
    as_published = copies == "original"
    model = bench.place(
        WithoutHalo(restored(UNet3d(), checkpoint), blocks.block, blocks.halo, cut_on_host=as_published)
    ).eval()
    batches = bench.loader(1, samples=blocks, shuffle=False, pin_memory=not as_published)
    for volume in bench.measure(batches, count=math.prod(whole)):
        bench.infer(model, volume)
