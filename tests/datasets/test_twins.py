"""The twins have the statistics of what they stand for."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from making import checksum, made
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from milabench_ng.datasets.base import random_stream
from milabench_ng.datasets.images import digits, photographs
from milabench_ng.datasets.images.bsds500 import Bsds500
from milabench_ng.datasets.images.imagenet import ClassicImageNet, ImageNet, Listed
from milabench_ng.datasets.images.mnist import Mnist
from milabench_ng.datasets.prepare import FoundDataset, check, locate
from milabench_ng.model.errors import InputError

SCALE = 0.002  # 200 + 10 + 10 pictures


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(Mnist(), tmp_path_factory.mktemp("data"), 0.5, 2)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(ImageNet(), tmp_path_factory.mktemp("data"), SCALE, 2)


def test_mnist_has_the_real_files_sizes_and_bytes_of_its_own(mnist: FoundDataset) -> None:
    raw = mnist.path / "MNIST" / "raw"
    assert mnist.path.name == "mnist"  # no scale: it has one size
    assert {path.name: path.stat().st_size for path in raw.iterdir()} == {
        "train-images-idx3-ubyte": 47_040_016,
        "train-labels-idx1-ubyte": 60_008,
        "t10k-images-idx3-ubyte": 7_840_016,
        "t10k-labels-idx1-ubyte": 10_008,
    }
    assert mnist.manifest is not None
    # Integer arithmetic: the same on every machine. Whoever changes the digits raises Mnist.version.
    assert (mnist.manifest.generator, mnist.manifest.checksum) == (
        1,
        "41b7bafe4c3a5720c1a520d6943cd5ae7b4cee4ffee2478823910941dfa9ae8a",
    )


def test_mnist_opens_as_images_and_has_mnists_statistics(mnist: FoundDataset) -> None:
    train, test = Mnist().open(mnist.path), Mnist().open(mnist.path, split="test")
    assert (len(train), len(test)) == (60_000, 10_000)  # type: ignore[arg-type]
    image, label = train[0]
    assert image.shape == (1, 28, 28)
    assert 0 <= label <= 9
    pixels = train.data.float() / 255  # type: ignore[attr-defined]
    assert pixels.mean().item() == pytest.approx(0.1307, abs=0.005)
    assert pixels.std().item() == pytest.approx(0.3081, abs=0.01)
    assert (pixels > 0).float().mean().item() == pytest.approx(0.19, abs=0.02)
    picture, _ = Mnist().open(mnist.path, transform=lambda picture: picture)[0]
    assert isinstance(picture, Image.Image)


def test_mnist_can_be_learnt_but_not_by_heart(mnist: FoundDataset) -> None:
    train, test = Mnist().open(mnist.path), Mnist().open(mnist.path, split="test")
    means = torch.stack([train.data[train.targets == c].float().mean(0).flatten() for c in range(10)])  # type: ignore[attr-defined]
    nearest = torch.cdist(test.data.float().flatten(1), means).argmin(1)  # type: ignore[attr-defined]
    right = (nearest == test.targets).float().mean().item()  # type: ignore[attr-defined]
    assert 0.7 < right < 0.99  # nearest class mean reaches 0.82 on the real digits


def test_digits_do_not_depend_on_the_process() -> None:
    labels = np.arange(50) % 10
    assert np.array_equal(digits.draw(random_stream(3, 1), labels), digits.draw(random_stream(3, 1), labels))
    assert not np.array_equal(digits.draw(random_stream(3, 1), labels), digits.draw(random_stream(3, 2), labels))


def test_imagenet_is_the_same_for_any_number_of_processes(imagenet: FoundDataset, tmp_path: Path) -> None:
    alone = made(ImageNet(), tmp_path, SCALE)
    assert checksum(imagenet) == checksum(alone)
    assert imagenet.manifest.files == 220


def test_imagenet_pixels_do_not_change_unnoticed() -> None:
    rng = random_stream(1, 0, 7)
    size = photographs.size_of(rng)
    picture = photographs.photograph(rng, photographs.look(1, 7), *size, photographs.texture(1))
    assert (size, int(np.asarray(picture, np.int64).sum())) == ((500, 375), 33387666)


def test_imagenet_files_look_like_photographs_to_a_disk_and_to_a_decoder(imagenet: FoundDataset) -> None:
    files = sorted((imagenet.path / "train").glob("*/*.jpeg"))
    assert len(files) == 200
    bytes_ = np.asarray([path.stat().st_size for path in files])
    assert 95_000 < bytes_.mean() < 125_000
    assert bytes_.std() > 30_000
    shapes = []
    for path in files:
        with Image.open(path) as picture:
            assert (picture.format, picture.mode) == ("JPEG", "RGB")
            assert [layer[1:3] for layer in picture.layer] == [(2, 2), (1, 1), (1, 1)]  # type: ignore[attr-defined]
            shapes.append(picture.size)
    assert np.median(shapes, axis=0).tolist() == [500, 375]
    assert any(height > width for width, height in shapes)
    assert max(max(shape) for shape in shapes) <= 1600


def test_photographs_have_a_natural_spectrum() -> None:
    texture = photographs.texture(1)
    window = np.outer(np.hanning(256), np.hanning(256))
    power = np.zeros((256, 256))
    for number in range(40):
        picture = photographs.photograph(random_stream(1, number), photographs.look(1, number), 256, 256, texture)
        grey = np.asarray(picture.convert("L"), float)
        power += abs(np.fft.fft2((grey - grey.mean()) * window)) ** 2
    frequency = np.hypot(*np.meshgrid(*[np.fft.fftfreq(256) * 256] * 2))
    bands = [3.0 * 2**octave for octave in range(5)]
    levels = [power[(frequency >= low) & (frequency < 2 * low)].mean() for low in bands]
    slope = np.polyfit(np.log(bands), np.log(levels) / 2, 1)[0]
    assert -1.5 < slope < -0.9  # photographs: -1.2 on average (Tolhurst, Tadmor, Chao 1992); noise: 0


def test_imagenet_opens_like_an_image_folder(imagenet: FoundDataset) -> None:
    train = ImageNet().open(imagenet.path)
    assert isinstance(train, Listed)
    assert len(train) == 200
    walked = ImageFolder(str(imagenet.path / "train"))
    assert sorted(train.samples) == sorted(walked.samples)
    images, labels = next(iter(DataLoader(train, batch_size=4)))
    assert images.shape == (4, 3, 224, 224)
    assert labels.tolist() == [train.samples[number][1] for number in range(4)]
    validation = ImageNet().open(imagenet.path, split="val", transform=lambda picture: picture)
    assert len(validation) == 10  # type: ignore[arg-type]


def test_bsds500_has_the_real_folders_and_sizes(tmp_path: Path) -> None:
    located = made(Bsds500(), tmp_path, 0.5, 2)
    assert located.path == tmp_path / "bsds500"  # no scale: it has one size
    images = located.path / "BSR" / "BSDS500" / "data" / "images"
    files = {split: sorted((images / split).glob("*.jpg")) for split in ("train", "val", "test")}
    assert {split: len(found) for split, found in files.items()} == {"train": 200, "val": 100, "test": 200}
    assert 65_000 < np.mean([path.stat().st_size for path in files["train"]]) < 85_000
    opened = Bsds500().open(located.path, transform=lambda picture: (picture.size, picture.mode))
    seen = [opened[number] for number in range(200)]
    assert {mode for _, mode in seen} == {"RGB"}
    assert {size for size, _ in seen} == {(481, 321), (321, 481)}
    assert 110 < sum(width > height for (width, height), _ in seen) < 160
    assert Bsds500().open(located.path, split="val")[0].shape[0] == 3
    assert Bsds500().looks_real(located.path)
    with pytest.raises(InputError, match="no split 'all'; it has: train, val, test"):
        Bsds500().open(located.path, split="all")


def test_classic_data_is_the_noise_of_2020_in_a_place_and_of_a_kind_of_its_own(tmp_path: Path) -> None:
    located = made(ClassicImageNet(), tmp_path, SCALE / 10, 2)
    assert located.manifest is not None
    assert (located.kind, located.manifest.kind, located.manifest.name) == ("classic", "classic", "imagenet-classic")
    assert located.path == tmp_path / f"scale-{SCALE / 10:g}" / "ImageNet-classic"
    assert locate(ImageNet(), tmp_path, SCALE / 10).kind == "absent"
    train = ClassicImageNet().open(located.path, transform=lambda picture: picture)
    assert len(train) == 20  # type: ignore[arg-type]
    files = sorted((located.path / "train").glob("*/*.jpeg"))
    assert np.mean([path.stat().st_size for path in files]) == pytest.approx(158_000, rel=0.01)  # measured of 2020's
    with Image.open(files[0]) as picture:
        assert picture.size == (512, 512)
        assert [layer[1:3] for layer in picture.layer] == [(2, 2), (1, 1), (1, 1)]  # type: ignore[attr-defined]
        assert picture.quantization[0][0] == 8  # type: ignore[attr-defined]  # 16 of the standard's table at quality 75
    assert not ClassicImageNet().looks_real(located.path)
    assert ImageNet.classic == ClassicImageNet.name
    assert ClassicImageNet.classic is None


def test_real_sets_are_recognised(tmp_path: Path) -> None:
    assert locate(ImageNet(), tmp_path, 1.0).kind == "absent"
    folder = tmp_path / "ImageNet" / "train" / "n01440764"
    folder.mkdir(parents=True)
    assert locate(ImageNet(), tmp_path, 1.0).kind == "absent"
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, "JPEG")
    (folder / "n01440764_1.JPEG").write_bytes(buffer.getvalue())
    real = locate(ImageNet(), tmp_path, 1.0)
    assert real.kind == "real"
    check(real)
    opened = ImageNet().open(real.path)
    assert type(opened) is ImageFolder
    assert opened[0][0].shape == (3, 224, 224)
