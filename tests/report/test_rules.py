"""Every rule of docs/run-rules.md both ways: a sound folder keeps it, and what breaks it is found by its id."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from tampering import NONCE, WHOLE, Change, Tamper, everywhere, fence, gpu, gpu_state, manifest, ours, record

from milabench_ng import __version__
from milabench_ng.records.record import RECORD_SCHEMA
from milabench_ng.report.launch.traces import PACING, Bands, ReferenceTrace, TraceBand
from milabench_ng.report.verification.bundle import pack
from milabench_ng.report.verification.checks.registry import RULES
from milabench_ng.report.verification.findings import Ruling, Verification
from milabench_ng.report.verification.forms import write_verification
from milabench_ng.report.verification.rules import Ceiling, DataRule, Pin, Rules
from milabench_ng.report.verification.verify import verify

WEIGHTS = b'{"standard.vae": {"weight": 8}, "standard.toy_reg": {"weight": 4}, "standard.scaling.2": {"weight": 2}}'
PROFILE = make_records.promise(WHOLE).profile
STRICT = Rules(
    name="strict",
    signed=True,
    ceiling=Ceiling(peak_flops={"Test GPU": {"fp32": 1e12}}, flops_per_item={"standard.vae": 5e9}),
    profile=Pin(sha256=PROFILE.sha256),
    weights=Pin(sha256=hashlib.sha256(WEIGHTS).hexdigest()),
    nonce=NONCE,
    arguments={"vae": {"max_count": 0}},
    repeat=2,
    ledger=True,
    failure_rate=0.01,
    retries=0,
    resumes=0,
    sessions=1,
    margin=0.5,
    isolation="full",
    data={"imagenet": DataRule(kind="twin", scale=1.0, checksums=(make_records.CHECKSUM,), cache="cold")},
    storage_refused=("memory",),
    closed=True,
    marks_refused=True,
    every_gpu=True,
    gpus=2,
    ecc=True,
    default_power=True,
    throttled=0.005,
    foreign_refused=True,
    witnessed={"R28": "A. Smith, 2026-01-06", "R29": "A. Smith, 2026-01-06", "R30": "A. Smith, 2026-01-06"},
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, and a file that allows the first."""
    place = tmp_path_factory.mktemp("keys")
    for name in ("vendor", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(place / name)]
        subprocess.run(command, check=True)
    public = (place / "vendor.pub").read_text()
    (place / "allowed").write_text(f'vendor@example.org namespaces="mnb" {public}')
    return place


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound") / "results"
    make_records.write_run(folder, WHOLE, slices=30)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(sound, tmp_path / "results"))


def packed(folder: Path, key: Path | None = None, weights: bytes = WEIGHTS) -> Path:
    """The bundle of a folder."""
    file = folder.with_name("weights.json")
    file.write_bytes(weights)
    return pack(folder, folder.with_name("b.tar.gz"), weights=file, key=key).path


def found(
    folder: Path, keys: Path, rules: Rules = STRICT, key: str = "vendor", weights: bytes = WEIGHTS
) -> Verification:
    """Pack and sign the folder like an honest vendor, and verify the bundle."""
    made = packed(folder, keys / key, weights)
    return verify(made, rules, allowed_signers=keys / "allowed")


def by_id(found: Verification) -> dict[str, Ruling]:
    return {ruling.id: ruling for ruling in found.rulings}


def test_a_sound_folder_keeps_every_rule(folder: Path, keys: Path) -> None:
    verification = found(folder, keys)
    assert {ruling.id: ruling.reasons for ruling in verification.rulings if ruling.result != "pass"} == {}
    assert verification.passed
    assert verification.sentence == f"PASS ({len(RULES)} rules of 'strict' hold)"
    assert verification.facts["signed by"] == "vendor@example.org"


def remove(pattern: str) -> Tamper:
    """Take records away, and the ledger's word of them."""

    def tamper(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()
        make_records.write_ledger(folder, WHOLE)

    return tamper


def hide_a_failed_attempt(folder: Path) -> None:
    """The failed record goes; the ledger that notes it stays."""
    path = next(folder.glob("standard.vae.J1.1.*"))
    tampering.rewrite(path, tampering.failed("oom"))
    make_records.write_ledger(folder, WHOLE)
    path.unlink()


def other_profile(content: dict[str, Any]) -> None:
    text = content["profile"]["text"].replace('"batch_size":64', '"batch_size":64.0')
    content["profile"]["text"] = text


def one_test_less(content: dict[str, Any]) -> None:
    content["plan"]["batches"] = [
        batch for batch in content["plan"]["batches"] if batch["launches"][0]["test"] != "standard.toy_reg"
    ]


def second_device_as_company(launch: dict[str, Any]) -> None:
    """A slow device is relabelled: it is there to be a neighbour, and is never scored."""
    if launch["devices"] == [1]:
        launch["role"] = "company"


def company_without_records(folder: Path) -> None:
    everywhere(second_device_as_company)(folder)
    remove("standard.vae.J0.1.*")(folder)


def as_company(content: dict[str, Any]) -> None:
    content["mnb"]["launch"]["role"] = "company"


def backwards(content: dict[str, Any]) -> None:
    content["plan"]["batches"].reverse()


def smaller_batch(launch: dict[str, Any]) -> None:
    launch["arguments"]["batch_size"] = 32


def overridden(launch: dict[str, Any]) -> None:
    launch["overrides"] = ["batch_size"]


def smaller_option(launch: dict[str, Any]) -> None:
    if launch["test"] == "standard.vae":
        launch["arguments"]["max_count"] = 10


def faster_learning(launch: dict[str, Any]) -> None:
    if launch["test"] == "standard.vae":
        launch["arguments"]["learning_rate"] = 1.0


def worth_more(folder: Path) -> None:
    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, ours(classic_factor=1000.0))
    make_records.write_ledger(folder, WHOLE)


def no_data_at_all(folder: Path) -> None:
    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, ours(data=None))
    make_records.write_ledger(folder, WHOLE)


def unsaid_storage(content: dict[str, Any]) -> None:
    del content["storage"]["outdir"]


def empty_bus(content: dict[str, Any]) -> None:
    content["inventory"]["pci_gpus"] = []


def moved(folder: Path, **more: float) -> None:
    """The stop of a batch 10 s earlier, with a window to fit."""
    for path in folder.glob("standard.vae.J0.*"):

        def change(content: dict[str, Any]) -> None:
            mnb = content["mnb"]
            stop = mnb["stop_s"] - 10
            mnb.update(stop_s=stop, window={"start_s": stop - 10, "end_s": stop - 1})
            mnb["ranks"][0] |= {name: mnb["ranks"][0][name] + by for name, by in more.items()}

        tampering.rewrite(path, change)
    make_records.write_ledger(folder, WHOLE)


def earlier_stop(folder: Path) -> None:
    moved(folder)


def earlier_full(folder: Path) -> None:
    moved(folder, full_s=-10)


def everywhere_full_too_soon(folder: Path) -> None:
    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"]["launch"]["arguments"].update(max_count=10**9))
    make_records.write_ledger(folder, WHOLE)


def cut_short(content: dict[str, Any]) -> None:
    del content["mnb"]["ranks"][0]["slices"][-2:]


def idle_gpu(content: dict[str, Any]) -> None:
    more = content["inventory"]["pci_gpus"][-1] | {"pci_bus_id": "0000:99:00.0"}
    content["inventory"]["pci_gpus"].append(more)


def another_gpu(content: dict[str, Any]) -> None:
    gpus = content["mnb"]["conditions"]["before"]["gpus"]
    gpus["GPU-9"] = next(iter(gpus.values()))


def tmpfs(content: dict[str, Any]) -> None:
    content["storage"]["dataroot"] |= {"filesystem": "tmpfs", "kind": "memory"}


def cut_the_ledger(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:4] + lines[5:]))


def small_share(content: dict[str, Any]) -> None:
    content["mnb"]["data"]["scale"] = 0.5


def source(content: dict[str, Any]) -> None:
    content["mnb"]["source"]["sha256"] = "1" * 64


def precise(content: dict[str, Any]) -> None:
    content["mnb"]["precision"]["ran_after"] = "tf32"


def imprecise(content: dict[str, Any]) -> None:
    content["mnb"]["precision"]["matmul_error_before"] = 3e-4


def layers_in_half(content: dict[str, Any]) -> None:
    content["mnb"]["precision"]["layer_dtype"] = "float16"


def too_many_latencies(content: dict[str, Any]) -> None:
    """Six batches in five steps."""
    content["mnb"]["ranks"][0]["slices"][20] += [None, [[348, 5], [465, 1]]]


def no_data(content: dict[str, Any]) -> None:
    content["mnb"]["data"] = None


def widened(content: dict[str, Any]) -> None:
    content["mnb"]["isolation"]["1"]["effective_end"]["cpus"] = [0, 1, 2, 3]


def lonely(content: dict[str, Any]) -> None:
    content["mnb"]["neighbours"] = {"planned": 1, "alive_at_stop": 0, "lost": [{"job_id": "1.0", "cause": "oom"}]}


def throttle(content: dict[str, Any]) -> None:
    for state in content["mnb"]["conditions"]["after"]["gpus"].values():
        state["throttled_ns"]["hw_thermal"] = 1e9


def hostname(content: dict[str, Any]) -> None:
    content["hostname"] = "faster-node"


def skipping(content: dict[str, Any]) -> None:
    steps = {"steps": 200, "skipped": 100, "settled_steps": 100, "settled_skipped": 90}
    content["mnb"]["ranks"][0]["skipped"] = steps


def lost_minus_one(content: dict[str, Any]) -> None:
    """A slow launch that the report should not see."""
    content["mnb"]["sampled"] = {"start_s": 0.0, "end_s": 1.0, "interval_s": 0.5, "dropped": -1}


def without_after(content: dict[str, Any]) -> None:
    del content["mnb"]["conditions"]["after"]


def read_too_soon(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["after"]["time_s"] = content["mnb"]["conditions"]["before"]["time_s"]


def gpu_not_read(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["after"]["gpus"] = {}


def mode_without_types(content: dict[str, Any]) -> None:
    content["mnb"]["precision"] |= {"dtypes": {}, "ran_before": "bf16", "ran_after": "bf16"}


def half_without_types(content: dict[str, Any]) -> None:
    """Types and what ran are forged; the parameters' digest is there."""
    content["mnb"]["launch"]["arguments"]["precision"] = "half_master"
    content["mnb"]["precision"] |= {"requested": "half_master", "dtypes": {}, "ran_before": "half", "ran_after": "half"}
    content["mnb"]["ranks"][0]["digests"] = {"100": "0" * 64}


def backlog(*edges: float, of: Callable[[int], int | None]) -> Change:
    """The backlog that a record states, and that of its slices, 30 of them; the window holds those from 10 to 27."""

    def change(content: dict[str, Any]) -> None:
        rank = content["mnb"]["ranks"][0]
        rank["backlog"] = list(edges) or None
        for place, row in enumerate(rank["slices"]):
            row[5:] = [of(place)]

    return change


def paced(content: dict[str, Any]) -> None:
    content["mnb"]["host_pace"]["1"]["after"]["mb_per_s"] = 90.0


def even(_place: int) -> int:
    return 64


def falling(place: int) -> int:
    """By one item a slice."""
    return 170 - place


BROKEN: dict[str, tuple[str, Tamper, str]] = {
    "tampered slice": ("R3", record(tampering.one_slice), "rates that rank 0 states are not those of its slices"),
    "slice taken out": ("R4", record(tampering.without_a_slice), "slice 20 begins 0.500 s after the one before it"),
    "stop at the best moment": ("R4", earlier_stop, "standard.vae J0.0: it was stopped -9.0 s after the last launch"),
    "full at the best moment": ("R4", earlier_full, "rank 0 has slices from long after its stop"),
    "full before max_count": ("R4", everywhere_full_too_soon, "items, 1000000000 are its max_count"),
    "slices cut before the stop": ("R4", record(cut_short), "rank 0 has no slices up to its stop"),
    "impossible rate": ("R5", record(tampering.faster), "x the peak of Test GPU in fp32"),
    "swapped profile": ("R6", manifest(other_profile), "is demanded"),
    "launches relabelled as company": ("R8", everywhere(second_device_as_company), ", company)"),
    "company that left no record": ("R12", company_without_records, "it was planned as company and has no record"),
    "record relabelled as company": ("R12", record(as_company), "it has a record as company and was not planned"),
    "test left out of the plan": ("R8", manifest(one_test_less), "the plan has not"),
    "batches in another order": ("R9", manifest(backwards), "not in the order that the nonce makes"),
    "batch size changed everywhere": ("R10", everywhere(smaller_batch), "batch_size is 32, 64 is demanded"),
    "batch size overridden": ("R10", everywhere(overridden), "changed on the command line: batch_size"),
    "option that the profile does not state": ("R10", everywhere(smaller_option), "max_count is 10, 0 is demanded"),
    "option that nobody states": ("R10", everywhere(faster_learning), "learning_rate is 1.0, 0.001 is demanded"),
    "items of all records": ("R10", worth_more, "its classic_factor is 1000.0, vae has 1.0"),
    "arguments of one record": ("R10", record(lambda at: smaller_batch(at["mnb"]["launch"])), "instead of 64"),
    "formula of one record": (
        "R10",
        record(ours(derived=[{"unit": "MPx/s", "formula": "rate * 9"}])),
        "its list of derived units is MPx/s = rate * 9, that of most of its row none",
    ),
    "items of one record": ("R10", record(ours(classic_factor=10.0)), "its classic_factor is 10.0, that of most"),
    "removed record": ("R12", remove("standard.vae.J0.0.*"), "standard.vae J0.0: it was planned and has no record"),
    "too few repeats": ("R11", remove("standard.vae.J1.*"), "standard.vae"),
    "hidden failed attempt": ("R13", hide_a_failed_attempt, "attempt 1 was recorded (it failed: oom)"),
    "line taken out of the ledger": ("R13", cut_the_ledger, "line 5"),
    "failed launch": ("R14", record(tampering.failed("oom")), "of the attempts failed"),
    "not isolated": ("R16", record(fence(tier="affinity")), "isolation was 'affinity', 'full' is demanded"),
    "claimed isolation": ("R16", record(fence(effective=None)), "no limits are recorded at its entry"),
    "share that grew": ("R16", record(widened), "cpus was (2, 3) at entry and (0, 1, 2, 3) at the end"),
    "lost neighbour": ("R17", record(lonely), "0 of 1 neighbours were there at the stop"),
    "record of another moment": ("R17", record(ours(start_s=900.0)), "did not start and stop together"),
    "lower precision": ("R18", record(precise), "fp32 was asked for, fp32, then tf32 ran"),
    "precision and probe": ("R18", record(imprecise), "fp32 is said to have run, and the probe's product was wrong by"),
    "layers in another type": (
        "R18",
        record(layers_in_half),
        "fp32 was asked for, the model's layers gave float16",
    ),
    "more batches than steps": (
        "R4",
        record(too_many_latencies),
        "slice 20 is impossible: the latencies of 6 batches in 5 steps",
    ),
    "data not said": ("R19", record(no_data), "it does not say what it read; vae reads mnist"),
    "data of no launch said": ("R19", no_data_at_all, "it does not say what it read; vae reads mnist"),
    "storage not said": ("R20", manifest(unsaid_storage), "run.json does not say what the outdir lies on"),
    "PCI bus not listed": ("R23", manifest(empty_bus), "the list of the PCI bus lacks the GPU at 0000:01:00.0"),
    "default power limit not told": (
        "R25",
        record(gpu(default_power_limit_w=None)),
        "GPU-1 does not say its power limit by default",
    ),
    "less data": ("R19", record(small_share), "imagenet has scale 0.5, 1 is demanded"),
    "data in memory": ("R20", manifest(tmpfs), "/data lies on tmpfs (memory), which is refused"),
    "changed workload": (
        "R21",
        record(source),
        "the source of milabench_ng.workloads.standard.vae:vae is not the one here",
    ),
    "mark": ("R22", record(ours(marks=["fence partial"])), "fence partial"),
    "skipped steps without their mark": ("R22", record(skipping), "90 % of the steps after settling skipped"),
    "record that the report cannot read": ("R12", record(lost_minus_one), "standard.vae.J1.1"),
    "mixed backlogs": ("R4", record(backlog(of=lambda at: None if at else 1)), "some of its slices have a backlog"),
    "backlog taken out": ("R4", record(backlog(of=even)), "the backlog that it states is not that of its"),
    "backlog not of the slices": ("R4", record(backlog(0, 0, of=even)), "the backlog that it states is not"),
    "backlog in one launch alone": ("R4", record(backlog(64, 64, of=even)), "J0.0: its slices have no backlog, as"),
    "backlog worked off": ("R4", record(backlog(320, 287, of=lambda at: 2 * falling(at))), "of the 954 items of its"),
    "mode without types": ("R18", record(mode_without_types), "fp32 was asked for, bf16 ran"),
    "half without types": ("R18", record(half_without_types), "half_master was asked for, half ran"),
    "missing GPU": ("R23", manifest(idle_gpu), "the GPU at 0000:99:00.0 (NVIDIA 10de:2335, nvidia) did not work"),
    "GPU that the inventory hides": ("R23", record(another_gpu), "launches saw the GPU GPU-9"),
    "ECC off": ("R24", record(gpu(ecc=False)), "ECC of GPU-1 is off"),
    "memory errors": ("R24", record(gpu_state(ecc_uncorrected=1)), "could not correct"),
    "power limit": ("R25", record(gpu(power_limit_w=900.0)), "is 900 W, its default 700 W"),
    "throttled": ("R25", record(throttle), "hw_thermal held the clocks of GPU-1 down"),
    "somebody else": ("R26", record(gpu_state(foreign_pids=[4711])), "processes 4711 of others on GPU-1"),
    "ECC not read": ("R24", record(without_after), "standard.vae J1.1: its conditions were not read after it"),
    "clocks read too soon": ("R25", record(read_too_soon), "not read before its start and after its stop"),
    "GPU not read": ("R26", record(gpu_not_read), "the state after it of its GPU GPU-1 was not read"),
    "processes not told": ("R26", record(gpu_state(foreign_pids=None)), "GPU-1 told processes before it and not after"),
    "damaged host pace": ("R12", record(paced), "a host pace of 90.0 MB/s does not follow from its bursts"),
    "another node": ("R27", record(hostname), "it was made on 'faster-node', the run on 'node'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_breaks_a_rule_is_found(case: str, folder: Path, keys: Path) -> None:
    rule, tamper, reason = BROKEN[case]
    tamper(folder)
    verification = found(folder, keys)
    ruling = by_id(verification)[rule]
    assert ruling.result == "fail"
    assert reason in "\n".join(ruling.reasons)
    assert not verification.passed
    assert f" {ruling.id} " in verification.sentence or f", {ruling.id}" in verification.sentence


def test_r1_a_file_changed_in_the_bundle(folder: Path, keys: Path) -> None:
    made = packed(folder, keys / "vendor")
    files = tampering.members(made)
    name = next(name for name in files if ".vae.J0.0." in name)
    files[name] = files[name].replace(b'"unit": "images"', b'"unit": "Images"')
    changed = by_id(verify(tampering.repack(made, files), STRICT, allowed_signers=keys / "allowed"))
    assert changed["R1"].reasons[0].startswith(f"{name} was changed after it was packed")
    assert changed["R13"].result == "fail"
    del files[name]
    gone = by_id(verify(tampering.repack(made, files), STRICT, allowed_signers=keys / "allowed"))
    assert gone["R1"].reasons == (f"{name} is in the packing list and not in the bundle",)


def test_r2_who_signed(folder: Path, keys: Path) -> None:
    assert "is not in" in by_id(found(folder, keys, key="other"))["R2"].reasons[0]
    unsigned = packed(folder)
    assert by_id(verify(unsigned, STRICT))["R2"].reasons == ("it is not signed",)
    signed = packed(folder, keys / "vendor")
    files = tampering.members(signed)
    files["bundle.json"] = files["bundle.json"].replace(b'"fail": 0', b'"fail":  0')
    forged = verify(tampering.repack(signed, files), STRICT, allowed_signers=keys / "allowed")
    assert by_id(forged)["R2"].reasons[0].startswith("the signature does not fit the bundle")


def test_r3_numbers_that_were_claimed(folder: Path) -> None:
    """A packing list that claims more than the slices give, signed by the vendor himself."""
    made = packed(folder)
    files = tampering.members(made)
    listed = json.loads(files["bundle.json"])
    listed["claim"]["tests"]["standard.vae"]["perf"] += 1
    listed["claim"]["per_node"] += 1
    files["bundle.json"] = msgspec.json.encode(listed)
    ruling = by_id(verify(tampering.repack(made, files), STRICT))["R3"]
    assert len(ruling.reasons) == 2
    assert ruling.reasons[1] == "standard.vae: perf was claimed as 104.0, and is 103.0"


def test_r22_a_launch_outside_its_reference_traces(folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report makes these marks; no record has them."""
    bands: Bands = {"gpu": {"fp32": {"1": TraceBand(2.0, 0.004)}}}
    arguments = {name: value for name, value in make_records.arguments_of("vae").items() if name not in PACING}
    trace = ReferenceTrace(arguments=arguments, data=("imagenet", "twin", 1.0), losses=bands)
    monkeypatch.setattr("milabench_ng.report.summary.folder.load_traces", lambda _suite: {"standard.vae": trace})

    def computed(loss: float) -> Tamper:
        return record(lambda content: content["mnb"]["ranks"][0].update(losses={"1": loss}), "standard.vae.*")

    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"]["ranks"][0].update(losses={"1": 2.0}))
    computed(2.0)(folder)
    assert by_id(found(folder, keys))["R22"].result == "pass"
    computed(1.8)(folder)
    ruling = by_id(found(folder, keys))["R22"]
    assert ruling.reasons == ("standard.vae: outside the reference: loss 1.8 at step 1, expected 2 +- 0.004",)


def test_a_stop_may_be_late_if_the_orchestrator_stood_still(
    folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milabench_ng.report.verification.checks.stops._LATE_S", 2.0)  # these launches last 15 s

    def full_too_early(content: dict[str, Any]) -> None:
        content["mnb"]["ranks"][0]["full_s"] -= 1.5

    def paused(content: dict[str, Any]) -> None:
        content["mnb"]["marks"] = [{"kind": "orchestrator paused", "value": 10.0, "limit": 3.0}]

    for change, result in ((full_too_early, "fail"), (paused, "pass")):
        for path in folder.glob("standard.vae.J0.*"):
            tampering.rewrite(path, change)
        make_records.write_ledger(folder, WHOLE)
        ruling = by_id(found(folder, keys))["R4"]
        assert ruling.result == result, ruling.reasons


def test_a_slice_of_no_length_is_no_record(folder: Path, keys: Path) -> None:
    """Everything divides by it."""
    record(lambda content: content["mnb"]["ranks"][0]["slices"][-10].__setitem__(1, 0.0))(folder)
    assert "not a whole record" in " ".join(by_id(found(folder, keys))["R12"].reasons)


@pytest.mark.parametrize(
    ("schema", "version", "said"),
    [
        (0, "0.0.9", "made by an earlier version of mnb, 0.0.9, schema 0; this is mnb"),
        (RECORD_SCHEMA + 1, "9.0.0", f"made by a later version of mnb, 9.0.0, schema {RECORD_SCHEMA + 1}; this is mnb"),
        (RECORD_SCHEMA, "0.0.9", f"made by another version of mnb, 0.0.9, schema {RECORD_SCHEMA}; this is mnb"),
        (RECORD_SCHEMA, __version__, "or made before that release"),
        (None, None, "does not say by which version"),
    ],
)
def test_a_record_that_lacks_a_field_says_which_version_made_it(
    folder: Path, keys: Path, schema: int | None, version: str | None, said: str
) -> None:
    def age(content: dict[str, Any]) -> None:
        del content["mnb"]["bound"]
        content["mnb"] |= {"schema": schema, "version": version}

    record(age)(folder)
    reasons = " ".join(by_id(found(folder, keys))["R12"].reasons)
    assert "not a whole record" in reasons
    assert said in reasons
    assert "has no record" not in reasons


def test_r7_changed_weights(folder: Path, keys: Path) -> None:
    heavier = WEIGHTS.replace(b'"weight": 8', b'"weight": 80')
    assert by_id(found(folder, keys, weights=heavier))["R7"].result == "fail"


def test_r15_an_incomplete_score_and_a_wide_interval(folder: Path, keys: Path) -> None:
    narrow = msgspec.structs.replace(STRICT, margin=1e-6)
    assert by_id(found(folder, keys, narrow))["R15"].result == "fail"
    remove("standard.vae.J0.0.*")(folder)
    assert "invalid" in by_id(found(folder, keys))["R15"].reasons[0]


def test_names_in_records_do_not_steer_the_terminal(folder: Path, keys: Path) -> None:
    record(lambda content: content.update(hostname="\x1b]0;mine\x07node\n"))(folder)
    verification = found(folder, keys)
    stream = io.StringIO()
    write_verification(verification, "table", stream)
    assert "\x1b" not in stream.getvalue()
    assert "it was made on '\\x1b]0;mine\\x07node\\n'" in stream.getvalue()


@pytest.mark.parametrize("rule", ["R28", "R29", "R30"])
def test_witnesses(rule: str, folder: Path, keys: Path) -> None:
    nobody = msgspec.structs.replace(STRICT, witnessed={})
    verification = found(folder, keys, nobody)
    assert by_id(verification)[rule].result == "unknown"
    assert verification.passed


def test_every_rule_is_broken_by_some_test() -> None:
    own_tests = {"R1", "R2", "R3", "R7", "R15", "R28", "R29", "R30", "R31", "R32"}
    assert {rule.id for rule in RULES} == {rule for rule, _, _ in BROKEN.values()} | own_tests
    assert [rule.id for rule in RULES] == [f"R{number}" for number in range(1, len(RULES) + 1)]


def test_the_document_lists_every_rule_with_its_kind_and_keys() -> None:
    text = (Path(__file__).parents[2] / "docs" / "run-rules.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| R\d+ ", line)]
    assert [(row[0], row[1]) for row in rows] == [(rule.id, rule.basis) for rule in RULES]
    named = {key for row in rows for key in re.findall("`(\\w+)`", row[3].rstrip(" |") if len(row) > 3 else "")}
    assert named == set(Rules.__struct_fields__) - {"schema", "name"}


def test_a_version_that_writes_a_ledger_must_have_left_one(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()
    assert "writes one in every run" in by_id(verify(folder, Rules()))["R13"].reasons[0]


def test_r4_tells_what_was_made_before_a_window(folder: Path, keys: Path) -> None:
    """160 at the first of 18 slices, 143.5 at the last two: 16.5 x 18 / 16 items, 1.9 % of 954."""
    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, backlog(64, 64, of=even))
    record(backlog(160, 143.5, of=falling))(folder)
    ruling = by_id(found(folder, keys))["R4"]
    assert ruling.result == "pass"
    assert ruling.reasons == (
        "standard.vae J1.1: rank 0: 19 of the 954 items of its window were made before it (above 0.5%)",
    )


def test_rules_on_gpus_do_not_fall_silent_without_conditions(folder: Path, keys: Path) -> None:
    for path in folder.glob("standard.*.json"):
        tampering.rewrite(path, ours(conditions={}))
    make_records.write_ledger(folder, WHOLE)
    verification = by_id(found(folder, keys))
    assert [verification[rule].result for rule in ("R24", "R25", "R26")] == ["fail"] * 3


def test_r5_knows_what_the_data_sheets_say(folder: Path, keys: Path) -> None:
    """102 to 106 items/s: H100 SXM does 67e12 FLOP/s in fp32."""
    rules = msgspec.structs.replace(STRICT, ceiling=Ceiling(flops_per_item={"standard.vae": 67e12 / 105}))
    assert by_id(found(folder, keys, rules))["R5"].result == "unknown"
    everywhere_named(folder, "NVIDIA H100 80GB HBM3")
    ruling = by_id(found(folder, keys, rules))["R5"]
    assert ruling.reasons == (
        "standard.vae J1.1: 106 items/s x 6.38e+11 FLOP are 1.01 x the peak of NVIDIA H100 80GB HBM3 in fp32",
    )
    slower = msgspec.structs.replace(rules, ceiling=Ceiling(flops_per_item={"standard.vae": 67e12 / 200}))
    ruling = by_id(found(folder, keys, slower))["R5"]
    launches, others = (len([*folder.glob(f"standard.{name}.*.json")]) for name in ("vae", "*"))
    assert ruling.result == "pass"
    assert ruling.reasons == (f"looked at in {launches} of {others} launches, whose FLOP and peak are known",)


def everywhere_named(folder: Path, name: str) -> None:
    """Devices of another name, in the plan and in the records."""
    for path in (folder / "run.json", *folder.glob("standard.*.json")):
        path.write_bytes(path.read_bytes().replace(b"Test GPU", name.encode()))
    make_records.write_ledger(folder, tampering.plan_of(folder))


def test_without_rules_only_what_needs_none_is_checked(folder: Path) -> None:
    def older(content: dict[str, Any]) -> None:
        content["version" if "plan" in content else "mnb"] = (
            "0.0.1" if "plan" in content else content["mnb"] | {"version": "0.0.1"}
        )

    for path in folder.glob("*.json"):
        tampering.rewrite(path, older)
    (folder / "ledger.jsonl").unlink()
    verification = verify(folder, Rules())
    assert verification.passed
    assert {ruling.id for ruling in verification.having("unknown")} == {"R1", "R13", "R28", "R29", "R30"}
    assert {"R2", "R6", "R7", "R9", "R14", "R21"} <= {ruling.id for ruling in verification.having("off")}
