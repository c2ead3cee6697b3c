"""wlm, translator and recom learn from small texts and ratings in the real sets' formats."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import LETTERS, laid, train

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Ready, Skips, Slice
from milabench_ng.workloads.standard.wlm import wlm

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    return functools.partial(laid, tmp_path)


@pytest.fixture
def alphabets(put: Put) -> Path:
    """A text of 210 tokens over 21 words, in which each word follows from the one before."""
    return put("wikitext-2", f" {' '.join(LETTERS)} \n" * 10, " a \n", " b \n")


def test_wlm(alphabets: Path) -> None:
    options = {"model": "GRU", "embedding": 16, "hidden": 16, "batch_size": 2, "learning_rate": 5.0}
    channel, spy = train("wlm", 150, alphabets, dropout=0.0, clip_norm=1.0, **options)
    assert channel.one(Ready).parameters == 21 * (16 + 16 + 1) + 2 * 3 * 16 * (16 + 16 + 2)
    assert spy.losses[0] == pytest.approx(math.log(21), abs=0.2)
    assert spy.losses[-1] < 0.3


def test_wlm_counts_tokens_in_the_last_shorter_window_too(alphabets: Path) -> None:
    channel, _ = train("wlm", 4, alphabets, embedding=2, hidden=2, batch_size=2, bptt=45)
    # two columns of 105 tokens: 104 steps of prediction are windows of 45, 45 and 14
    assert [entry.count for entry in channel.all(Slice)] == [90, 90, 28, 90]
    assert wlm.classic_factor * 35 == pytest.approx(1)


@pytest.mark.parametrize(("mode", "skips"), [("half_master", True), ("half_master_static", False)])
def test_wlm_in_fp16_at_a_learning_rate_of_20_stays_finite(alphabets: Path, mode: str, skips: bool) -> None:
    """A dynamic loss scale tells how many steps it skipped. A static one of 128, as in 2020, skips none."""
    options = {"model": "GRU", "embedding": 16, "hidden": 16, "batch_size": 2, "dropout": 0.5}
    channel, spy = train("wlm", 200, alphabets, precision=mode, vocabulary_multiple=8, **options)
    assert channel.one(Ready).ran == channel.one(Done).ran == mode
    assert channel.one(Ready).skips == skips
    assert bool(channel.all(Skips)) == skips
    assert channel.one(Ready).dtypes == {"float16": 24 * (16 + 16 + 1) + 2 * 3 * 16 * (16 + 16 + 2)}
    assert spy.losses[0] == pytest.approx(math.log(24), abs=0.2)
    assert all(math.isfinite(loss) for loss in spy.losses)
    assert sum(spy.losses[-10:]) / 10 < 2.8


def test_translator(put: Put) -> None:
    """The translation of a sentence is the sentence, backwards and in capitals."""
    sentences = [" ".join(LETTERS[start : start + 3]) for start in range(16)] * 3
    place = put(
        "wmt16",
        "".join(f"{sentence}\n" for sentence in sentences),
        "".join(f"{sentence[::-1].upper()}\n" for sentence in sentences),
        "".join(f"{letter}\n" for letter in LETTERS + LETTERS.upper()),
    )
    channel, spy = train("translator", 150, place, hidden=24, layers=3, batch_size=10, learning_rate=0.01, dropout=0.0)
    assert channel.one(Ready).parameters == channel.one(Ready).dtypes["float32"]
    assert channel.one(Done).count == 1_500
    assert [entry.count for entry in channel.all(Slice)[:5]] == [10] * 5  # 48 pairs: the part batch is left out
    assert sum(spy.losses[-10:]) < 0.75 * sum(spy.losses[:10])


def test_translator_leaves_out_what_is_longer_than_asked(put: Put) -> None:
    text = "a b c\na b c d\na\n"
    place = put("wmt16", text, text, "a\nb\nc\nd\n")
    seen, _ = train("translator", 4, place, hidden=4, layers=2, batch_size=1, longest=5)
    assert seen.one(Done).count == 4
    with pytest.raises(InputError, match="no batch"):
        train("translator", 1, place, hidden=4, layers=2, batch_size=3, longest=5)


def test_recom(put: Put) -> None:
    """Users like the items that leave the same remainder by 5 as themselves."""
    rows = [
        f"{user}\t{item}\t1\n" for user in range(60) for item in range(40) if (user - item) % 5 == 0 and user != item
    ]
    options = {"factors": 8, "layers": "16,8", "batch_size": 128, "learning_rate": 0.02}
    channel, spy = train("recom", 250, put("ml-20m", "".join(rows)), **options)
    assert channel.one(Ready).parameters == (60 + 40) * 16 + 17 * 8 + 17
    assert spy.losses[0] == pytest.approx(math.log(2), abs=0.2)
    assert sum(spy.losses[-10:]) / 10 < 0.3  # who knows only that one sample in five is a rating has 0.50
    assert {entry.count for entry in channel.all(Slice)} == {128}
