"""The speech that is generated, what is read of it, and batches of equal work."""

from __future__ import annotations

import hashlib
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from making import checksum, differing, made

from milabench_ng.datasets.audio import ljspeech
from milabench_ng.datasets.audio.even_batches import EvenBatches
from milabench_ng.datasets.audio.ljspeech import LJSpeech, Utterances
from milabench_ng.datasets.audio.voice import SAMPLE_RATE, SOUND, speech
from milabench_ng.datasets.base import random_stream
from milabench_ng.datasets.prepare import FoundDataset, locate
from milabench_ng.model.errors import InputError

SCALE = 0.002  # 26 utterances


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(LJSpeech(), tmp_path_factory.mktemp("data"), SCALE, 2)


def opened(place: FoundDataset) -> Utterances:
    found = LJSpeech().open(place.path)
    assert isinstance(found, Utterances)
    return found


def test_the_twin_has_the_real_files(place: FoundDataset) -> None:
    lines = [line.split("|") for line in (place.path / "metadata.csv").read_text().splitlines()]
    assert {path.stem for path in (place.path / "wavs").iterdir()} == {name for name, _, _ in lines}
    assert (len(lines), lines[0][0], lines[25][0]) == (26, "LJ001-0001", "LJ001-0026")
    with wave.open(str(place.path / "wavs" / "LJ001-0007.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22_050)
    for _, text, spoken in lines:
        assert text == spoken
        assert text[0].isupper()
        assert text.endswith(".")
    assert differing(LJSpeech(), place, SCALE) == ()


def test_samples_are_what_the_files_say(place: FoundDataset) -> None:
    utterances = opened(place)
    assert len(utterances) == 26
    lines = [line.split("|") for line in (place.path / "metadata.csv").read_text().splitlines()]
    for number in (0, 9, 25):
        sound, letters = utterances[number]
        assert bytes(letters.tolist()).decode() == lines[number][2]
        with wave.open(str(place.path / "wavs" / f"{lines[number][0]}.wav")) as file:
            assert sound.numpy().astype("<i2").tobytes() == file.readframes(file.getnframes())
        assert len(sound) == utterances.lengths[number]
    with pytest.raises(InputError, match="no split 'test'; it has: train"):
        LJSpeech().open(place.path, split="test")


def test_it_is_the_same_for_any_number_of_processes(place: FoundDataset, tmp_path: Path) -> None:
    alone = made(LJSpeech(), tmp_path, SCALE)
    assert checksum(alone) == checksum(place)


def test_speech_does_not_change_unnoticed() -> None:
    """Whoever changes it raises the version of the twin."""
    sound = speech(random_stream(1, 2), 30_000)
    assert sound.dtype == np.int16
    assert (LJSpeech.version, hashlib.sha256(sound.astype("<i2").tobytes()).hexdigest()[:16]) == (1, "5066782dcc987b43")


def test_speech_has_a_voice_and_hisses_and_pauses() -> None:
    sound = speech(random_stream(3, 1), 100 * SOUND).reshape(100, SOUND).astype(float)
    loud = sound.std(1)
    assert 5 < (loud < 100).sum() < 40  # pauses
    assert loud.max() > 1_000
    spectrum = np.abs(np.fft.rfft(sound[loud > 800] * np.hanning(SOUND))) ** 2
    hertz = np.fft.rfftfreq(SOUND, 1 / SAMPLE_RATE)
    below = spectrum[:, hertz < 4_000].sum(1) / spectrum.sum(1)
    assert (below > 0.95).mean() > 0.7  # voices end there, hisses do not
    assert (below < 0.6).any()


def test_durations_and_texts_are_those_of_the_real_set() -> None:
    """The real ones: 1.11 to 10.10 s, 6.57 on average; 100 letters on average; frames of 256 samples: 566."""
    seconds = np.asarray(ljspeech._durations()) / SAMPLE_RATE
    assert (seconds.min(), seconds.max()) == pytest.approx((1.1, 10.1))
    assert seconds.mean() == pytest.approx(6.57, abs=0.06)
    assert (np.asarray(ljspeech._durations()) // 256 + 1).mean() == pytest.approx(566, rel=0.01)
    texts = [ljspeech._text(5, ["abc", "de"], item) for item in range(400)]
    assert np.mean([len(text) for text in texts]) == pytest.approx(100, abs=5)
    assert max(len(text) for text in texts) <= 187


def test_its_size_is_estimated(place: FoundDataset) -> None:
    size = LJSpeech().size(SCALE)
    found = [path.stat().st_size for path in place.path.rglob("*") if path.is_file() and "mnb" not in path.name]
    assert size.files == len(found)
    assert size.bytes == pytest.approx(sum(found), rel=0.15)


REAL = "LJ001-0001|Printing, 1|Printing, one\nLJ001-0002|in being|in béing\n"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A real set of two utterances below the data root `tmp_path`."""
    folder = tmp_path / "LJSpeech-1.1"
    (folder / "wavs").mkdir(parents=True)
    (folder / "metadata.csv").write_text(REAL)
    for name, length in (("LJ001-0001", 5), ("LJ001-0002", 3)):
        write(folder / "wavs" / f"{name}.wav", length, SAMPLE_RATE)
    return folder


def write(file: Path, length: int, rate: int) -> None:
    with wave.open(str(file), "wb") as opened:
        opened.setparams((1, 2, rate, 0, "NONE", ""))
        opened.writeframes(np.arange(length, dtype="<i2").tobytes())


def test_a_real_set_is_read_with_its_normalised_texts(real: Path, tmp_path: Path) -> None:
    assert locate(LJSpeech(), tmp_path, 1.0).kind == "real"
    utterances = opened(made(LJSpeech(), tmp_path))
    assert utterances.folder == str(real)
    assert utterances.lengths.tolist() == [5, 3]
    sound, letters = utterances[1]
    assert sound.tolist() == [0, 1, 2]
    assert bytes(letters.tolist()).decode() == "in béing"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: write(folder / "wavs" / "LJ001-0002.wav", 3, 16_000),
            r"0002\.wav has 1 channels of 16 bits at",
        ),
        (
            lambda folder: (folder / "wavs" / "LJ001-0002.wav").write_bytes(b"RIFF"),
            r"0002\.wav is listed in metadata.csv, but is no WAV file",
        ),
        (lambda folder: (folder / "metadata.csv").write_text("LJ001-0001|one\n"), "'LJ001-0001' has 2 columns"),
        (lambda folder: (folder / "wavs" / "LJ001-0002.wav").unlink(), r"0002\.wav is listed in .*No such file"),
    ],
)
def test_a_real_set_that_is_none(real: Path, tmp_path: Path, change: object, message: str) -> None:
    assert callable(change)
    change(real)
    with pytest.raises(InputError, match=message):
        made(LJSpeech(), tmp_path)


def test_batches_have_a_sample_of_each_range_of_lengths() -> None:
    lengths = torch.randperm(100, generator=torch.Generator().manual_seed(3))
    order = EvenBatches(lengths, 20)
    epoch = list(order(torch.Generator().manual_seed(1)))
    assert sorted(epoch) == list(range(100))
    batches = lengths[torch.tensor(epoch)].view(5, 20)
    assert (batches // 5).tolist() == [list(range(20))] * 5
    assert epoch == list(order(torch.Generator().manual_seed(1)))
    assert epoch != list(order(torch.Generator().manual_seed(2)))


@pytest.mark.parametrize("batch", [48, 144, 220, 352, 448, 512, 640])
def test_what_is_left_out_is_as_long_as_what_is_kept(batch: int) -> None:
    lengths = 100 + torch.randperm(1310, generator=torch.Generator().manual_seed(3))
    kept = torch.tensor(list(EvenBatches(lengths, batch)(torch.Generator())))
    assert len(set(kept.tolist())) == len(kept) == 1310 // batch * batch
    assert lengths[kept].double().mean().item() == pytest.approx(lengths.double().mean().item(), rel=0.01)


@pytest.mark.parametrize(("samples", "batch", "left"), [(0, 4, 0), (3, 4, 3), (10, 4, 8)])
def test_epochs_of_few_samples(samples: int, batch: int, left: int) -> None:
    epoch = list(EvenBatches(torch.arange(samples), batch)(torch.Generator()))
    assert len(epoch) == len(set(epoch)) == left
