"""The twins of texts and ratings: the real sets' files and figures, and the same binary files from real ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from making import checksum, made

from milabench_ng.datasets import words
from milabench_ng.datasets.base import BINARY, DataSet, random_stream
from milabench_ng.datasets.prepare import FoundDataset, locate
from milabench_ng.datasets.shuffled import shuffled
from milabench_ng.datasets.tables import ml_20m
from milabench_ng.datasets.tables.ml_20m import MovieLens
from milabench_ng.datasets.text import parallel_text
from milabench_ng.datasets.text.bucketing import Buckets, collate
from milabench_ng.datasets.text.news_commentary import NewsCommentary
from milabench_ng.datasets.text.squad import Squad
from milabench_ng.datasets.text.wikitext_2 import WikiText2
from milabench_ng.datasets.text.wikitext_103 import WikiText103
from milabench_ng.datasets.text.wmt16 import Wmt16
from milabench_ng.model.errors import InputError

SCALE = 0.0005


@pytest.fixture(scope="module")
def wikitext(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(WikiText2(), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def wmt(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(Wmt16(), tmp_path_factory.mktemp("data"), SCALE, 2)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(MovieLens(), tmp_path_factory.mktemp("data"), SCALE, 2)


def test_the_plan_names_as_many_files_as_are_written(
    wikitext: FoundDataset, wmt: FoundDataset, ratings: FoundDataset
) -> None:
    for data_set, twin, scale in ((WikiText2(), wikitext, 1.0), (Wmt16(), wmt, SCALE), (MovieLens(), ratings, SCALE)):
        assert twin.manifest is not None
        assert data_set.size(scale).files == twin.manifest.files, data_set.name


def test_wikitext_has_the_real_tokens_lines_and_words(wikitext: FoundDataset) -> None:
    read = {split: (wikitext.path / f"wiki.{split}.tokens").read_text() for split in ("train", "valid", "test")}
    assert [whole.count("\n") for whole in read.values()] == [36_718, 3_760, 4_358]
    tokens = {split: whole.replace("\n", "<eos>").split() for split, whole in read.items()}
    assert [len(words) for words in tokens.values()] == [2_088_628, 217_646, 245_569]
    assert len(set().union(*tokens.values())) == 33_278
    counts = Counter(tokens["train"])
    (_, first), *_ = counts.most_common()
    assert first / 2_088_628 == pytest.approx(0.05, abs=0.005)
    assert counts["<unk>"] / 2_088_628 == pytest.approx(0.02, abs=0.005)
    assert min(counts.values()) >= 3  # rarer ones are <unk> in the real set
    assert 10e6 < len(read["train"]) < 13e6  # real: 10.8 MB
    shares = np.asarray(list(counts.values())) / 2_088_628
    assert -(shares * np.log(shares)).sum() == pytest.approx(7.668, abs=0.001)  # the least loss: there is no order
    # Integer arithmetic: the same on every machine. Whoever changes the text raises WikiText2.version.
    assert checksum(wikitext) == "8487802bd240fefc865742cafd0a45295afa2ad2308f72fb46bdd6afe5cf8d11"


def test_wikitext_opens_as_its_text_in_numbers(wikitext: FoundDataset) -> None:
    opened = WikiText2().open(wikitext.path)
    assert opened.vocabulary == 33_278  # type: ignore[attr-defined]
    spelling = (wikitext.path / "wiki.train.tokens").read_text().replace("\n", "<eos>").split()
    names = dict(zip(opened.tokens.tolist(), spelling, strict=True))  # type: ignore[attr-defined]
    assert len(names) == len(set(spelling))
    assert [names[number] for number in opened.tokens[:500].tolist()] == spelling[:500]  # type: ignore[attr-defined]
    assert opened[7] == (opened.tokens[7], opened.tokens[8])  # type: ignore[attr-defined]
    columns = opened.columns(64)  # type: ignore[attr-defined]
    assert columns.shape == (32_634, 64)
    assert columns[5, 3] == opened.tokens[3 * 32_634 + 5]  # type: ignore[attr-defined]


def test_wmt_has_sentences_of_the_real_lengths(wmt: FoundDataset) -> None:
    english, german = (
        [line.split() for line in (wmt.path / f"train.tok.clean.bpe.32000.{language}").read_text().splitlines()]
        for language in ("en", "de")
    )
    assert len(english) == len(german) == 2_000
    lengths = np.asarray([[len(line) for line in side] for side in (english, german)])
    assert lengths.min() >= 1
    assert lengths.mean(1) == pytest.approx([28.4, 29.4], abs=1.5)
    assert np.corrcoef(lengths)[0, 1] > 0.9
    vocabulary = (wmt.path / "vocab.bpe.32000").read_text().split()
    assert len(set(vocabulary)) == 32_316
    assert {word for line in english for word in line} <= set(vocabulary)


def test_wmt_opens_as_pairs_of_numbers(wmt: FoundDataset) -> None:
    opened = Wmt16().open(wmt.path)
    assert (len(opened), opened.vocabulary) == (2_000, 32_320)  # type: ignore[arg-type,attr-defined]
    vocabulary = (wmt.path / "vocab.bpe.32000").read_text().split()
    lines = (wmt.path / "train.tok.clean.bpe.32000.de").read_text().splitlines()
    _, target = opened[1_234]
    assert (target[0], target[-1]) == (parallel_text.BEGIN, parallel_text.END)
    assert " ".join(vocabulary[number - 4] for number in target[1:-1].tolist()) == lines[1_234]
    chosen = opened.up_to(50)  # type: ignore[attr-defined]
    longest = [max(len(part) for part in opened[index]) for index in range(len(opened))]  # type: ignore[arg-type]
    assert chosen.tolist() == [index for index, length in enumerate(longest) if length <= 50]
    assert 0.8 < len(chosen) / 2_000 < 0.9


def test_the_twin_of_wmt_did_not_change(wmt: FoundDataset) -> None:
    """Integer arithmetic: the same on every machine. Whoever changes the text raises Wmt16.version."""
    assert checksum(wmt) == "19bc32d24017c5be64f05b4b4c0e491a1ab9b63917a97a3fe0481a6f44754e4c"


def test_news_has_the_lengths_and_sub_words_that_gnmt_is_trained_on(tmp_path: Path) -> None:
    """Of the real set, 92.5 % of the pairs have at most 50 numbers a side, and such a pair has 48.7 tokens."""
    located = made(NewsCommentary(), tmp_path, 0.05)
    opened = NewsCommentary().open(located.path)
    assert (len(opened), opened.vocabulary) == (8_000, 31_800)  # type: ignore[arg-type,attr-defined]
    chosen = opened.up_to(50)  # type: ignore[attr-defined]
    assert 0.88 < len(chosen) / 8_000 < 0.95
    tokens = opened.lengths[:, chosen].sum(0) - 1  # type: ignore[attr-defined]
    assert tokens.float().mean().item() == pytest.approx(48.7, rel=0.05)
    assert np.corrcoef(opened.lengths.numpy())[0, 1] > 0.9  # type: ignore[attr-defined]


def test_a_long_text_has_all_words_at_every_scale(tmp_path: Path) -> None:
    located = made(WikiText103(), tmp_path, 0.0001)
    opened = WikiText103().open(located.path)
    assert opened.vocabulary == 267_735  # type: ignore[attr-defined]
    assert len(opened) == 999_999  # type: ignore[arg-type]
    text = (located.path / "wiki.train.tokens").read_text()
    lines = text.count("\n")
    assert 1_000_000 / lines == pytest.approx(57 * 1_000_000 / (1_000_000 - 267_735), rel=0.02)
    assert text.endswith("\n")
    spelling = text.replace("\n", "<eos>").split()
    names = dict(zip(opened.tokens.tolist(), spelling, strict=True))  # type: ignore[attr-defined]
    assert len(names) == len(set(spelling)) == 267_735
    assert {"<eos>", "<unk>"} <= set(names.values())
    assert [names[number] for number in opened.tokens[-500:].tolist()] == spelling[-500:]  # type: ignore[attr-defined]


def test_questions_are_cut_or_padded_to_one_length_and_know_their_answers(tmp_path: Path) -> None:
    located = made(Squad(), tmp_path, 0.02)
    opened = Squad().open(located.path)
    assert len(opened) == 1_773  # type: ignore[arg-type]
    lengths = np.diff(opened.starts)  # type: ignore[attr-defined]
    assert lengths.mean() == pytest.approx(150, abs=5)
    assert lengths.max() <= 384
    for index in range(0, 1_773, 50):
        found, (first, last) = opened[index]
        tokens, real, parts, span = opened.padded(384)[index]  # type: ignore[attr-defined]
        assert (tokens[: len(found)] == found).all()
        assert not tokens[len(found) :].any()
        assert int(real.sum()) == len(found) == int(lengths[index])
        separators = (tokens == 102).nonzero().flatten().tolist()
        assert tokens[0] == 101
        assert separators[1] == len(found) - 1
        assert parts.nonzero().flatten().tolist() == [*range(separators[0] + 1, len(found))]
        assert span.tolist() == [first, last]
        assert separators[0] < first <= last < separators[1]
        tokens, real, _, span = opened.padded(64)[index]  # type: ignore[attr-defined]
        assert (tokens == found[:64]).all() if len(found) >= 64 else int(real.sum()) == len(found)
        assert span.tolist() == ([first, last] if last < 64 else [0, 0])


def test_ratings_have_the_real_tables_and_a_few_items_that_all_know(ratings: FoundDataset) -> None:
    opened = MovieLens().open(ratings.path)
    assert (opened.users, opened.items) == (138_493, 26_744)  # type: ignore[attr-defined]
    rows = np.loadtxt(ratings.path / "train-ratings.csv", np.int64, delimiter="\t")
    assert (rows[:, 2] == 1).all()
    assert len(rows) == len(opened) == len(np.unique(rows[:, 0] * 26_744 + rows[:, 1]))  # type: ignore[arg-type]
    assert [opened[index] for index in (0, 99)] == [tuple(rows[index, :2]) for index in (0, 99)]
    assert set(rows[:, 1].tolist()) == set(range(26_744))
    pairs = rows[:500, 0] * 26_744 + rows[:500, 1]
    kind = opened.pairs.dtype  # type: ignore[attr-defined]
    assert opened.contain(pairs.astype(kind)).all()  # type: ignore[attr-defined]
    absent = np.setdiff1d(np.arange(3_000), rows[:, 0] * 26_744 + rows[:, 1])
    assert not opened.contain(absent.astype(kind)).any()  # type: ignore[attr-defined]


def test_ratings_at_full_scale_have_the_real_extremes() -> None:
    """One block of users in the place of all: the whole takes a minute of a core."""
    counts = ml_20m._per_user(1.0, 1)
    assert (counts.sum(), len(counts)) == (19_861_770, 138_493)
    assert counts.max() == pytest.approx(9_253, rel=0.01)
    assert np.median(counts) == pytest.approx(67, abs=10)
    names = np.arange(26_744)
    pairs = ml_20m._choose(random_stream(1), counts[:300], names, first=100_000)
    assert (np.bincount(pairs // 26_744) == counts[:300]).all()
    assert len(np.unique(pairs)) == len(pairs)
    known = np.bincount(pairs % 26_744) / 300
    assert known.max() == pytest.approx(67_310 / 138_493, abs=0.15)


@pytest.mark.parametrize("data_set", [Wmt16(), MovieLens()], ids=["wmt16", "ml-20m"])
def test_the_same_for_any_number_of_processes(
    data_set: DataSet, wmt: FoundDataset, ratings: FoundDataset, tmp_path: Path
) -> None:
    alone = made(data_set, tmp_path, SCALE)
    shared = wmt if data_set.name == "wmt16" else ratings
    assert checksum(alone) == checksum(shared)


def test_real_texts_are_converted_once_and_again_when_they_change(tmp_path: Path) -> None:
    place = tmp_path / "wikitext-2"
    place.mkdir()
    for split, text in (("train", " a b \n \n = c = \n"), ("valid", " b d \n"), ("test", " <unk> \n")):
        (place / f"wiki.{split}.tokens").write_text(text)
    assert locate(WikiText2(), tmp_path, 1.0).kind == "real"
    made(WikiText2(), tmp_path)
    opened = WikiText2().open(place)
    assert opened.tokens.tolist() == [0, 1, 2, 2, 3, 4, 3, 2]  # type: ignore[attr-defined]
    assert opened.vocabulary == 7  # type: ignore[attr-defined]
    written = (place / BINARY / "train.npy").stat().st_mtime_ns
    assert made(WikiText2(), tmp_path) == FoundDataset(place, "real")
    assert (place / BINARY / "train.npy").stat().st_mtime_ns == written
    (place / "wiki.valid.tokens").write_text(" e f g \n")
    made(WikiText2(), tmp_path)
    assert WikiText2().open(place).vocabulary == 9  # type: ignore[attr-defined]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wikitext-2"]


def test_real_pairs_and_ratings(tmp_path: Path) -> None:
    place = tmp_path / "wmt16"
    place.mkdir()
    (place / "vocab.bpe.32000").write_text("the\ncat\ndie\nKatze\n")
    (place / "train.tok.clean.bpe.32000.en").write_text("the cat\n\nthe dog\n")
    (place / "train.tok.clean.bpe.32000.de").write_text("die Katze\nja\ndie\n")
    made(Wmt16(), tmp_path)
    pairs = [[part.tolist() for part in pair] for pair in map(Wmt16().open(place).__getitem__, range(3))]
    assert pairs == [[[2, 4, 5, 3], [2, 6, 7, 3]], [[2, 3], [2, 1, 3]], [[2, 4, 1, 3], [2, 6, 3]]]
    (place / "train.tok.clean.bpe.32000.de").write_text("die\n")
    with pytest.raises(InputError, match=r"\.en has 3 lines, train.*\.de has 1"):
        made(Wmt16(), tmp_path)

    place = tmp_path / "ml-20m"
    place.mkdir()
    (place / "train-ratings.csv").write_text("1\t2\t1\n0\t3\t1\n1\t0\t1\n")
    made(MovieLens(), tmp_path)
    opened = MovieLens().open(place)
    assert [opened[index] for index in range(3)] == [(0, 3), (1, 0), (1, 2)]
    (place / "train-ratings.csv").write_text("userId,movieId\n")
    with pytest.raises(InputError, match="Its lines must be user, item and rating between tabs"):
        made(MovieLens(), tmp_path)
    assert sorted(path.name for path in place.iterdir()) == ["train-ratings.csv"]


def test_a_text_is_cut_at_the_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    lines = [b"x" * number + b"\n" for number in range(40)]
    path.write_bytes(b"".join(lines))
    pieces = [words.read_piece(path, piece) for piece in words.cut(path, 50)]
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) > 10
    assert all(piece.endswith(b"\n") for piece in pieces)


@pytest.mark.parametrize("length", [1, 2, 10, 1_000, 99_999])
def test_a_shuffled_epoch_is_a_permutation(length: int) -> None:
    whole = shuffled(np.arange(length), length, key=7)
    assert np.array_equal(np.sort(whole), np.arange(length))
    part = np.arange(length // 3, length // 2)
    assert np.array_equal(shuffled(part, length, key=7), whole[part])
    if length == 99_999:
        assert abs(np.corrcoef(whole, np.arange(length))[0, 1]) < 0.01
        assert abs(np.corrcoef(whole[1:], whole[:-1])[0, 1]) < 0.01
        assert (whole == shuffled(np.arange(length), length, key=8)).sum() < 10


def test_buckets_are_whole_batches_of_like_length_each_sample_once() -> None:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(4, 100, (2_100,), generator=generator)
    chosen = torch.arange(2_100) * 2
    buckets = Buckets(chosen, lengths, 8, generator)
    first, second = list(buckets), list(buckets)
    assert len(first) == 2_096  # 262 batches of 8
    assert set(first) < set(chosen.tolist())
    assert len(set(first)) == 2_096
    assert first != second
    sorted_batches = lengths[torch.tensor(first) // 2].view(-1, 8)
    spread = (sorted_batches.max(1).values - sorted_batches.min(1).values).float().mean()
    assert spread < 5  # of 96: three shards of 640 samples and one of 180
    assert abs(np.corrcoef(sorted_batches.float().mean(1).numpy(), np.arange(262))[0, 1]) < 0.3


def test_a_batch_is_padded_with_the_longest_source_first() -> None:
    pairs = [
        (torch.tensor([2, 9, 3]), torch.tensor([2, 8, 8, 3])),
        (torch.tensor([2, 7, 7, 7, 3]), torch.tensor([2, 3])),
    ]
    sources, targets, lengths = collate(pairs)
    assert sources.t().tolist() == [[2, 7, 7, 7, 3], [2, 9, 3, 0, 0]]
    assert targets.t().tolist() == [[2, 3, 0, 0], [2, 8, 8, 3]]
    assert lengths == [5, 3]
