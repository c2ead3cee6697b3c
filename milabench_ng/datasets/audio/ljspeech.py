"""LJ Speech: sentences read aloud, one WAV file each, and their texts in `metadata.csv`."""

from __future__ import annotations

import functools
import wave
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.datasets.audio.voice import SAMPLE_RATE, speech
from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.words import invent
from milabench_ng.model.errors import InputError

TEXTS = "metadata.csv"
UTTERANCES = 13_100
SHORTEST, LONGEST = 24_255, 222_705  # samples: 1.1 s and 10.1 s
MEAN, DEVIATION = 6.57, 2.2  # seconds
LETTERS_PER_SECOND = 15
MOST_LETTERS = 187
WORDS = 4_000
POINTS = 1_000  # equally likely durations
BYTES_PER_UTTERANCE = 290_300
SECONDS_PER_UTTERANCE = 0.03
ENTRY = np.dtype([("file", "S64"), ("samples", "i8"), ("first", "i8"), ("letters", "i8")])
"""Of an utterance: its file, its length, and where in all letters its text begins, and how long that is."""
Array = npt.NDArray[Any]


class LJSpeech(DataSet):
    """LJ Speech 1.1 (keithito.com/LJ-Speech-Dataset). Twin: 13,100 utterances of invented speech, 6.6 s on average."""

    name = "ljspeech"
    folder = "LJSpeech-1.1"
    version = 1
    scalable = True
    texts = (TEXTS,)

    def size(self, scale: float) -> Size:
        count = _count(scale)
        return Size(count + 3, count * BYTES_PER_UTTERANCE, count * SECONDS_PER_UTTERANCE)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        (place / "wavs").mkdir()
        for_each(functools.partial(_write, place, seed), _count(scale), processes, progress)
        words = invent(random_stream(seed, 0), WORDS, shortest=1)
        lines = (
            f"{_name(item)}|{text}|{text}\n" for item in range(_count(scale)) for text in [_text(seed, words, item)]
        )
        (place / TEXTS).write_text("".join(lines), "utf-8")

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:  # noqa: ARG002
        """Write the lengths of all utterances, and their texts as one array of bytes."""
        rows = [line.split("|") for line in (place / TEXTS).read_text("utf-8").splitlines()]
        entries = np.zeros(len(rows), ENTRY)
        texts = []
        for entry, row in zip(entries, rows, strict=True):
            if len(row) != 3:
                raise InputError(
                    f"{place / TEXTS}: {row[0]!r} has {len(row)} columns; LJ Speech has name, text, text. Replace "
                    "the file"
                )
            texts.append(row[2].encode())
            entry["file"] = f"wavs/{row[0]}.wav".encode()
            entry["samples"] = _samples(place / "wavs" / f"{row[0]}.wav")
            entry["letters"] = len(texts[-1])
        entries["first"] = np.cumsum(entries["letters"]) - entries["letters"]
        np.save(target / "utterances.npy", entries)
        np.save(target / "letters.npy", np.frombuffer(b"".join(texts), np.uint8))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        entries, letters = (
            np.load(place / BINARY / f"{name}.npy", mmap_mode="r") for name in ("utterances", "letters")
        )
        return Utterances(place, entries, letters, transform or _as_it_is)

    def looks_real(self, place: Path) -> bool:
        return super().looks_real(place) and (place / "wavs").is_dir()


class Utterances(Dataset[Any]):
    """Utterances; a sample is `transform(sound, letters)`: int16 [samples], and the bytes of its text, uint8 [n]."""

    def __init__(self, place: Path, entries: Array, letters: Array, transform: Callable[..., Any]) -> None:
        self.folder = str(place)
        self.entries, self.letters = entries, letters
        self.transform = transform

    @property
    def lengths(self) -> Tensor:
        """Samples of each utterance, int64."""
        return torch.from_numpy(np.array(self.entries["samples"]))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Any:
        entry = self.entries[index]
        with wave.open(f"{self.folder}/{entry['file'].decode()}", "rb") as file:
            sound = np.frombuffer(bytearray(file.readframes(file.getnframes())), "<i2")
        letters = np.array(self.letters[entry["first"] : entry["first"] + entry["letters"]])
        return self.transform(torch.from_numpy(sound), torch.from_numpy(letters))


def _as_it_is(sound: Tensor, letters: Tensor) -> Any:
    return sound, letters


def _count(scale: float) -> int:
    return max(1, round(UTTERANCES * scale))


def _name(item: int) -> str:
    return f"LJ{1 + item // 262:03d}-{1 + item % 262:04d}"


def _samples(file: Path) -> int:
    """The length of a WAV file of one channel, 16 bits and 22,050 Hz."""
    try:
        with wave.open(str(file), "rb") as opened:
            form = (opened.getnchannels(), opened.getsampwidth(), opened.getframerate())
            count = opened.getnframes()
    except (FileNotFoundError, wave.Error, EOFError) as error:
        raise InputError(f"{file} is listed in {TEXTS}, but is no WAV file: {error!r}. Replace it") from error
    if form != (1, 2, SAMPLE_RATE):
        raise InputError(
            f"{file} has {form[0]} channels of {8 * form[1]} bits at {form[2]} Hz; LJ Speech has one of 16. Replace it"
        )
    return count


@functools.cache
def _durations() -> tuple[int, ...]:
    """Equally likely lengths of utterances in samples."""
    spoken = NormalDist(MEAN * SAMPLE_RATE, DEVIATION * SAMPLE_RATE)
    drawn = (round(spoken.inv_cdf((point + 0.5) / POINTS)) for point in range(POINTS))
    return tuple(min(max(length, SHORTEST), LONGEST) for length in drawn)


def _duration(seed: int, item: int) -> int:
    return _durations()[int(random_stream(seed, 1, item).integers(POINTS))]


def _text(seed: int, words: list[str], item: int) -> str:
    """About fifteen letters a second, give or take 15 %: a sentence with a capital and a full stop."""
    rng = random_stream(seed, 2, item)
    wanted = _duration(seed, item) * LETTERS_PER_SECOND * int(rng.integers(85, 116)) // (100 * SAMPLE_RATE)
    chosen = rng.integers(0, len(words), wanted)
    sentence = " ".join(words[number] for number in chosen.tolist())[: min(wanted, MOST_LETTERS) - 1]
    return f"{sentence.rstrip().capitalize()}."


def _write(place: Path, seed: int, item: int) -> None:
    """Make one file."""
    sound = speech(random_stream(seed, 3, item), _duration(seed, item))
    with wave.open(str(place / "wavs" / f"{_name(item)}.wav"), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes(sound.astype("<i2").tobytes())
