"""The modern suite's tests of links, buses and storage, in small, on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from launching import run
from rank_jobs import OPERATIONS
from recording import Recording, bench_on

from milabench_ng.bench import storage
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.errors import DataError, InputError, WrongResultError
from milabench_ng.model.events import Checked, Digest, Done, Mismatch, Slice
from milabench_ng.model.units import GIB, KIB, MIB
from milabench_ng.records.worker_variables import STORAGE_VARIABLE
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.modern import h2d as copies
from milabench_ng.workloads.modern import shard_files
from milabench_ng.workloads.modern.checkpoint import SavedShards, random_shards
from milabench_ng.workloads.modern.collectives_sweep import TIMES

WORKLOADS = builtin_workloads()


def most_of_a_step(name: str, options: dict[str, Scalar], devices: int) -> float:
    """What `mnb verify` allows."""
    return read_builtin()[name].most_of_a_step(options, devices) or 0.0


def derived(name: str, notes: dict[str, float], devices: int = 1, **given: Any) -> dict[str, float]:
    options = {option.name: option.default for option in WORKLOADS[name].own_options} | given
    return {each.unit: each.of(0.0, options, {**notes, "devices": devices}) for each in WORKLOADS[name].derived}


def test_checkpoint_saves_and_restores_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    channel = run(WORKLOADS["checkpoint"], 3, shards=2, shard_mib=1)
    assert channel.one(Done).count == 3
    for event in channel.all(Slice):
        assert event.notes["save_s"] > 0 < event.notes["restore_s"]
        assert 0 <= event.notes["cached"] <= 1
    assert [event.step for event in channel.all(Digest)] == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_the_record_has_digests_of_what_was_written_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of equal seeds: of shard 0 and of the last but seven, by a sum of words that Python adds up itself."""
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    (found,) = run(WORKLOADS["checkpoint"], 1, shards=16, shard_mib=1).all(Digest)
    words = random_shards(bench_on(Recording()), 16, MIB)[[0, 8]].tolist()
    sums = [sum(word * (2 * place + 1) for place, word in enumerate(row)) % 2**64 for row in words]
    assert found.sha256 == hashlib.sha256(b"".join(one.to_bytes(8, "little") for one in sums)).hexdigest()


@pytest.mark.parametrize("flipped", [False, True])
def test_checkpoint_tells_what_it_verified(flipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the burns do, so that a report counts it: each shard that is read back is one check of so many bytes."""
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    read = shard_files.load

    def load(file: Path, words: torch.Tensor) -> None:
        read(file, words)
        words[0] ^= int(flipped)

    monkeypatch.setattr("milabench_ng.workloads.modern.checkpoint.load", load)
    channel = run(WORKLOADS["checkpoint"], 3, shards=2, shard_mib=1)
    told = channel.all(Checked)[-1]
    assert (told.unit, told.checks, told.wrong) == ("GB", 3, 3 * flipped)
    assert told.work == pytest.approx(3 * MIB / 1e9)
    assert {event.what for event in channel.all(Mismatch)} == ({"shard 0", "shard 1"} if flipped else set())


@pytest.mark.parametrize("bit", [0, 8 * MIB - 1])
def test_a_bit_that_flips_on_the_storage_is_found(tmp_path: Path, bit: int) -> None:
    bench = bench_on(Recording())
    saved = SavedShards(bench, tmp_path, random_shards(bench, 2, MIB))
    saved.save(1)
    assert torch.equal(saved.restore(1), saved.digests[1])
    content = bytearray((tmp_path / "1.shard").read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    (tmp_path / "1.shard").write_bytes(content)
    assert not torch.equal(saved.restore(1), saved.digests[1])
    (tmp_path / "1.shard").write_bytes(content[:-1])
    with pytest.raises(DataError, match="1 bytes are missing at its end"):
        saved.restore(1)


def test_a_shard_is_synced_renamed_and_synced_again_before_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (calls.append(name), call(*given))[1]

    for name in ("write", "fsync", "replace", "posix_fadvise"):
        monkeypatch.setattr(shard_files.os, name, noting(name, getattr(shard_files.os, name)))
    shard_files.save(tmp_path / "0.shard", torch.arange(4))
    assert calls == ["write", "fsync", "replace", "fsync", "posix_fadvise"]
    assert [path.name for path in tmp_path.iterdir()] == ["0.shard"]


def test_storage_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    with (
        pytest.raises(InputError, match=r"2 x .* of files are written to .* there is room for"),
        storage.folder(1 << 60, 2),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_seconds_for_8b_are_those_of_96_gigabytes() -> None:
    found = derived("checkpoint", {"save_s": 0.2, "restore_s": 0.125, "cached": 0.25})
    assert found == pytest.approx(
        {
            "MiB/s saved": 1280,
            "MiB/s restored": 2048,
            "s to save 8B": 96.4e9 / (1280 * MIB),
            "s to restore 8B": 96.4e9 / (2048 * MIB),
            "% read from the page cache": 25,
        },
        rel=1e-4,
    )


def test_h2d_copies_both_ways() -> None:
    channel = run(WORKLOADS["h2d"], 3, mib=1)
    assert channel.one(Done).count == 6 == 3 * most_of_a_step("h2d", {"mib": 1}, devices=1)  # as of old, too
    assert all(event.notes.keys() == {"in_s", "out_s"} for event in channel.all(Slice))
    found = derived("h2d", {"in_s": 0.005, "out_s": 0.01})
    assert found == pytest.approx({"GB/s to the device": 53.687, "GB/s to the host": 26.844}, rel=1e-4)


@pytest.mark.parametrize("direction", ["in", "out"])
def test_h2d_copies_one_way(direction: copies.Direction) -> None:
    """It times this way alone, and finds a byte that is wrong after its last copy."""
    channel = run(WORKLOADS["h2d"], 3, mib=1, direction=direction)
    assert channel.one(Done).count == 3 == 3 * most_of_a_step("h2d", {"mib": 1, "direction": direction}, devices=1)
    assert all(event.notes.keys() == {f"{direction}_s"} for event in channel.all(Slice))
    copier = copies.Copier(bench_on(Recording()), MIB, direction)
    copier.step()
    copier.check()
    (copier._device[1] if direction == "in" else copier._returned)[7] ^= 1
    with pytest.raises(WrongResultError, match="1 of 1,048,576 bytes"):
        copier.check()


def test_h2d_finds_a_byte_that_came_back_wrong() -> None:
    copier = copies.Copier(bench_on(Recording()), MIB)
    copier.step()
    copier.check()
    copier._device[1][7] ^= 1
    copier.step()
    with pytest.raises(WrongResultError, match="1 of 1,048,576 bytes came back"):
        copier.check()


@pytest.mark.parametrize("steps", [1, 3])
def test_h2d_checks_its_last_copy_to_the_device(steps: int) -> None:
    """No later step brings it back, so that a wrong byte of it would pass."""
    copier = copies.Copier(bench_on(Recording()), MIB)
    for _ in range(steps):
        copier.step()
    copier.check()
    copier._device[1][9] ^= 1
    with pytest.raises(WrongResultError, match="1 of 1,048,576 bytes reached the device by the last copy other"):
        copier.check()


def test_collectives_count_what_is_on_the_wires(ranks: dict[str, list[Any]]) -> None:
    """Of 64 KiB and 8 MiB summed, 2 x 2 MiB of blocks and 2 MiB exchanged, by two ranks: 11 MiB a step."""
    for count, notes in ranks["talk"]:
        assert count == 2 * 11
        options = {"small_kib": 1, "large_mib": 1, "block_mib": 1, "exchange_mib": 1}
        assert 11 <= most_of_a_step("collectives", options, devices=2) < 12.1
        assert all(one.keys() == {"small_s", "large_s", "gather_s", "scatter_s", "exchange_s"} for one in notes)


def test_collectives_tell_what_they_verified_and_what_was_wrong(ranks: dict[str, list[Any]]) -> None:
    """A step compares one element in 997 of 64 KiB, 8 MiB, and blocks of 1, 0.5 and 1 MiB."""
    (nothing, sound), (found, damaged) = ranks["lie"]
    assert (nothing, sound.wrong) == ([], 0)
    assert found == [("messages", 1)], "the second step compares other elements"
    assert (damaged.unit, damaged.checks, damaged.wrong) == ("GB", 2, 1)
    assert damaged.work == pytest.approx(2 * 10.5625 * MIB / 997 / 1e9, rel=0.1)  # rows are short


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_sweep_times_every_size_and_counts_its_messages(operation: str, ranks: dict[str, list[Any]]) -> None:
    """Up to 256 KiB, 20 of which are 5 MiB: with the smaller ones, 6.8 MiB a step."""
    sizes = (8, 64, 512, 4096, 32 * KIB, 256 * KIB)
    factor = 1.0 if operation in ("all_reduce", "broadcast") else 0.5
    for told in ranks[operation]:
        assert told.count == 2 * 7
        for one in told.notes:
            assert one.keys() == {"factor", *(f"b{size}_s" for size in sizes)}
            assert one["factor"] == factor
        assert (told.wrong, told.checked.checks, told.checked.wrong) == ([], 2 * len(sizes), 0)
    assert most_of_a_step("collectives_sweep", {"largest_mib": 1}, devices=2) >= 7


@pytest.mark.parametrize("largest_mib", [1, 2, 16, 128, 1024, 8192])
def test_a_sweep_says_how_much_a_step_sends_at_most(largest_mib: int) -> None:
    sent = sum(size * times for size, times in TIMES.items() if size <= largest_mib * MIB) / MIB
    most = most_of_a_step("collectives_sweep", {"largest_mib": largest_mib}, devices=2)
    assert sent <= most
    assert largest_mib < 8192 or most < 1.02 * sent


def test_bandwidth_and_latency_over_the_size_of_a_message() -> None:
    notes = {f"b{size}_s": times * (1e-5 + size / 1e11) for size, times in TIMES.items()} | {"factor": 1.75}
    found = {(each.unit, each.curve_at): each.of(0.0, {}, notes) for each in WORKLOADS["collectives_sweep"].derived}
    assert len({at for unit, at in found if unit == "GB/s"}) == 11
    assert found["us", 8.0] == pytest.approx(10, rel=1e-4)
    assert found["GB/s", float(8 * GIB)] == pytest.approx(175, rel=1e-3)
    assert found["GB/s from 1 GiB", msgspec.UNSET] == pytest.approx(175, rel=1e-2)
    assert found["us up to 64 KiB", msgspec.UNSET] == pytest.approx(10, rel=1e-2)
    cut = {each.unit for each in WORKLOADS["collectives_sweep"].derived if each.fits({"largest_mib": 1024})}
    assert cut == {"us up to 64 KiB", "GB/s", "us"}, "no plateau where the largest size is left out"


def test_a_part_that_comes_from_another_rank_is_found_in_a_sweep(ranks: dict[str, list[Any]]) -> None:
    sound, damaged = ranks["sweep_wrongly"]
    assert sound.wrong == []
    assert damaged.wrong == [("64 bytes", 1), ("64 bytes", 2)]
    assert (damaged.checked.unit, damaged.checked.wrong) == ("GB", 2)


@pytest.mark.parametrize(("devices", "factor"), [(2, 0.5), (4, 0.75), (8, 0.875)])
def test_bus_bandwidth_by_the_factors_of_nccl(devices: int, factor: float) -> None:
    notes = dict.fromkeys(("small_s", "large_s", "gather_s", "scatter_s", "exchange_s"), 0.001)
    assert derived("collectives", notes, devices) == pytest.approx(
        {
            "GB/s all-reduce, small": 64 * 262_144 * 2 * factor / 1e6,
            "GB/s all-reduce, large": 8 * 33_554_432 * 2 * factor / 1e6,
            "GB/s all-gather": 2 * 436_207_616 * factor / 1e6,
            "GB/s reduce-scatter": 2 * 436_207_616 * factor / 1e6,
            "GB/s all-to-all": 2 * 67_108_864 * factor / 1e6,
        }
    )
