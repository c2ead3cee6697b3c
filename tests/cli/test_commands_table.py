"""What users type, rightly or wrongly: the exit code, and how the first line begins.

A line of `TABLE` is a command, its exit code and the beginning of its first line, on standard output or, if there is
nothing, on standard error. Everything runs in this process, in a folder with results: nothing here starts a worker.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import make_records
import pytest
from make_records import PER_GPU, PROGRESSION

from milabench_ng.cli import call
from milabench_ng.model.plan import Launch

SCALES = dict.fromkeys(("toy_reg", "toy_lstm", "vae", "loader", "convnet"), PER_GPU) | {"scaling": PROGRESSION}


def slowly(launch: Launch, rank: int) -> float:
    """Slow enough for what the made-up node has of CPU time, which decodes pictures."""
    return 0.4 * make_records.steady(launch, rank)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``res`` (two repeats), ``again`` (slower), ``odd`` (a broken record), ``cut`` (half a manifest).

    There are bundles of ``res`` and ``cut``, summaries and bids.
    """
    place = tmp_path_factory.mktemp("table")
    whole = make_records.plan("quick", SCALES, 2, 2)
    make_records.write_run(place / "res", whole, slowly, slices=24)
    make_records.write_run(place / "again", whole, lambda launch, rank: 0.9 * slowly(launch, rank), 25, "again")
    shutil.copytree(place / "res", place / "odd")
    next((place / "odd").glob("quick.vae.J0.0.*")).write_text('{"x":1}')
    shutil.copytree(place / "res", place / "cut")
    os.truncate(place / "cut" / "run.json", 3000)
    shutil.copytree(place / "cut", place / "runs" / "cut")
    (place / "empty").mkdir()
    (place / "notes.txt").write_text("buy milk\n")
    (place / "list.json").write_text("[]")
    (place / "empty.json").write_text("")
    (place / "wide.json").write_text("{}", encoding="utf-16")
    (place / "old.txt").write_text("a report\n")
    bid = {"results": "res", "price": 100_000}
    (place / "bids.json").write_text(json.dumps({"reference": "again", "bids": {"acme": bid}}))
    (place / "again-bids.json").write_text(json.dumps({"reference": "res.tar.gz", "bids": {"acme": bid}}))
    (place / "bad-bids.json").write_text(json.dumps({"reference": "again", "bids": {"acme": {"results": "res"}}}))
    (place / "rules.json").write_text('{"name": "mine", "repeat": 2}')
    (place / "odd-rules.json").write_text('{"repeats": 2}')
    (place / "profile.json").write_text('{"one": {"workload": "vae", "batch": 1}}')
    for command in ("bundle res -o res.tar.gz", "summary res -o base.json"):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            assert call(shlex.split(command)) == 0
    with tarfile.open(place / "res.tar.gz") as whole, tarfile.open(place / "cut.tar.gz", "w:gz") as cut:
        for member in whole:
            content = whole.extractfile(member)
            assert content
            member.size = 3000 if member.name == "results/run.json" else member.size
            cut.addfile(member, content)
    return place


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, which no command may change but for what it was asked to write."""
    monkeypatch.chdir(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    yield place
    for path in [path for path in place.rglob("*") if path.is_file() and path not in before]:
        path.unlink()
    changed = [path.name for path, content in before.items() if path.read_bytes() != content]
    for path, content in before.items():
        path.write_bytes(content)
    assert changed in ([], ["old.txt"])


TABLE = r"""
report res | 0 | mnb · quick · res
report cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: Unterminated string
report runs | 2 | mnb: runs: no result folder, since it holds no run.json; give the folder that `mnb jobs` wrote (below
report cut.tar.gz | 2 | mnb: cut.tar.gz: run.json: not a readable manifest: not JSON: Unterminated string
report odd | 1 | mnb · quick · odd
report again --compare res | 0 | mnb · quick · again
report res --compare base.json | 0 | mnb · quick · res
report res --compare res.tar.gz | 0 | mnb · quick · res
report res.tar.gz | 0 | mnb · quick · res.tar.gz
report res.tar.gz --rules rules.json | 0 | mnb · quick · res.tar.gz
report base.json | 0 | mnb · quick · base.json
report base.json --rules rules.json | 2 | mnb: --rules rules.json: base.json is neither a result folder nor a bundle;
report base.json --compare v100 | 0 | mnb · quick · base.json
report res --compare v100 h200 | 0 | mnb · quick · res
report --compare base.json res | 0 | mnb · quick · res
report --compare base.json v100 res | 0 | mnb · quick · res
report --compare base.json --compare v100 res | 0 | mnb · quick · res
report --compare base.json res --compare v100 | 2 | mnb: report: which is the folder? It stands before --compare, or
report --compare base.json --compare v100 | 2 | mnb: report: FOLDER is missing: mnb report FOLDER --compare
report --compare base.json | 2 | mnb: report: FOLDER is missing: mnb report FOLDER --compare base.json
report --compare v100 res again --layout interference | 2 | mnb: report --compare v100 res again: which are folders?
report --compare | 2 | mnb report: --compare: its value is missing; mnb report --help says what it takes
report | 2 | mnb: report: FOLDER is missing: mnb report FOLDER --compare v100
report res --compare | 2 | mnb report: --compare: its value is missing; mnb report --help says what it takes
report res --margin -1% | 2 | mnb report: --margin: its value is missing; -1% begins with a dash: write --margin=-1%
report res --allowed-signers vendors.txt | 2 | mnb: --allowed-signers vendors.txt: only rules ask for it; say
report res --tsa-certs tsa.pem | 2 | mnb: --tsa-certs tsa.pem: only rules ask for it; say --rules too
report res --html page -o page | 2 | mnb: --html page --output page: the same file; name two
report h200 | 2 | mnb: h200: no such file or folder; for the shipped baseline of that name: mnb baseline show h200, or
report res --compare h20 | 2 | mnb: h20: no such file or folder, and no baseline of that name is shipped (did you
report res --compare nowhere.json | 2 | mnb: nowhere.json: no such file or folder, and no baseline of that name is
report res --price 300,000 | 0 | mnb · quick · res
report res --price 300000 | 0 | mnb · quick · res
report res --price 15000.50 --price-per gpu | 0 | mnb · quick · res
report res --price 3e5 | 0 | mnb · quick · res
report res --price -5 | 2 | mnb: --price -5: an amount such as 300000, 300,000 or 15000.50
report res --price a-lot | 2 | mnb: --price a-lot: an amount such as 300000, 300,000 or 15000.50
report res --price 30,00 | 2 | mnb: --price 30,00: an amount such as 300000, 300,000 or 15000.50
report res --price-per gpu | 2 | mnb: --price-per gpu: of what price? Say --price too
report res --price 1 --price-per rack | 2 | mnb report: Invalid value "rack" for --price-per. Choose from: "node",
report res --margin 2 | 2 | mnb: --margin 2: it must be above 0 and below 100 %, for example 2%
report res --margin 0 | 2 | mnb: --margin 0: it must be above 0 and below 100 %, for example 2%
report res --margin 5% | 0 | mnb · quick · res
report res --margin two | 2 | mnb: --margin: 'two' is not a share; write a percentage such as 2%
report res --format jsn | 2 | mnb report: Invalid value "jsn" for --format. Choose from: "table", "json", "csv",
report res --format json | 0 | {
report res --format csv | 0 | test,unit,weight,n,fail,perf (unit/s),+-95 % (%),std (%),devices (%),runs (%),perf_adj
report res --format markdown | 0 | # mnb report: quick
report res --layout cv --format json | 2 | mnb: --layout cv --format json: a suite's layout is a table, csv or markdown
report res --layout cv | 2 | mnb: --layout cv: res has no measured test of that suite; run mnb jobs cv
report res --layout cv --format csv | 2 | mnb: --layout cv: res has no measured test of that suite; run mnb jobs cv
report res --per-gpu | 0 | mnb · quick · res
report res --weights nowhere.json | 2 | mnb: nowhere.json: No such file or directory
report res --weights notes.txt | 2 | mnb: notes.txt: not JSON: Expecting value (line 1, column 1)
report res --rules standard | 1 | mnb · quick · res
report res --rules standard --allowed-signers nowhere | 2 | mnb: --allowed-signers nowhere: no such file; it
report res --rules rules.json --nonce other | 1 | mnb · quick · res
report res --nonce other | 2 | mnb: --nonce other: only rules ask for it; say --rules too
report res -n 5 | 2 | mnb report: unknown option -n (did you mean --nonce?)
report res --rules rules.json | 0 | mnb · quick · res
report res --rules odd-rules.json | 2 | mnb: odd-rules.json: Object contains unknown field `repeats`; the keys of
report res --rules nowhere.json | 2 | mnb: --rules nowhere.json: no such file; the shipped ones are procurement
report res --colour | 2 | mnb report: unknown option --colour; mnb report --help lists the options
report res --forma json | 2 | mnb report: unknown option --forma (did you mean '--format'?)
report nowhere | 2 | mnb: nowhere: No such file or directory
report empty | 2 | mnb: empty: no result folder, since it holds no record and no run.json; give the folder that
report notes.txt | 2 | mnb: notes.txt: not JSON: Expecting value (line 1, column 1); is it the file that you mean?
report res/run.json | 2 | mnb: res/run.json: the manifest of a run; give its folder
report res -o new.txt | 0 |
report res -o old.txt | 2 | mnb: --output old.txt: the file exists; name another one, or say --force
report res -o old.txt --force | 0 |
report res -o res/run.json | 2 | mnb: --output res/run.json: evidence of a run is never overwritten; name another file
report res -o res/run.json --force | 2 | mnb: --output res/run.json: evidence of a run is never overwritten; name
report res -o res/ledger.jsonl --force | 2 | mnb: --output res/ledger.jsonl: evidence of a run is never overwritten;
report res -o nowhere/new.txt | 2 | mnb: --output nowhere/new.txt: No such file or directory
report res -o empty | 2 | mnb: --output empty: Is a directory
report res --html old.txt | 2 | mnb: --html old.txt: the file exists; name another one, or say --force
report res --html nowhere/new.html | 2 | mnb: --html nowhere/new.html: No such file or directory
report res --html new.html | 0 | mnb · quick · res
report res --html res/run.json --force | 2 | mnb: --html res/run.json: evidence of a run is never overwritten; name
report res --tables tables | 0 | mnb · quick · res
report res --tables notes.txt | 2 | mnb: --tables notes.txt: File exists
report "" | 2 | mnb: argument 2 is empty; is a variable of the shell not set?
report res --tables "" | 2 | mnb: argument 4 is empty; is a variable of the shell not set?
accept "" res | 2 | mnb: argument 2 is empty
report list.json | 2 | mnb: list.json: not a summary; give a result folder or what `mnb summary -o` wrote
report empty.json | 2 | mnb: empty.json: not JSON: Expecting value (line 1, column 1); is it the file that you mean?
report wide.json | 2 | mnb: wide.json: begins with the byte order mark of UTF-16; save it as UTF-8 without one
report /dev/zero | 2 | mnb: /dev/zero: a device, and not a file
report res --price 0 | 2 | mnb: --price 0: an amount such as
report res --price 1e400 | 2 | mnb: --price 1e400: an amount such as
report res odd | 2 | mnb: odd: a second folder goes with --layout interference alone
summary res | 0 | {
summary res.tar.gz | 0 | {
summary base.json | 0 | {
summary res -o new.json | 0 |
summary res -o base.json | 2 | mnb: --output base.json: the file exists; name another one, or say --force
summary res -o res/run.json | 2 | mnb: --output res/run.json: evidence of a run is never overwritten; name another
summary res -o res/run.json --force | 2 | mnb: --output res/run.json: evidence of a run is never overwritten; name
summary odd | 1 | {
summary cut | 2 | mnb: cut: run.json: not a readable manifest
summary nowhere | 2 | mnb: nowhere: No such file or directory
summary empty | 2 | mnb: empty: no result folder, since it holds no record and no run.json; give the folder that
summary res --format 2020 | 0 | {
summary res --format 2021 | 2 | mnb summary: Invalid value "2021" for --format. Choose from: "mnb", "2020". Did you
summary | 2 | mnb summary: FOLDER is missing; mnb summary --help has an example
bundle res -o new.tar.gz | 0 | bundle: new.tar.gz
bundle res -o res.tar.gz | 2 | mnb: --output res.tar.gz: the file exists; name another one, or say --force
bundle res -o res.tar.gz --force | 0 | bundle: res.tar.gz
bundle res -o res/run.json --force | 2 | mnb: --output res/run.json: evidence of a run is never overwritten; name
bundle cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: Unterminated string
bundle nowhere | 2 | mnb: nowhere: no such folder
bundle empty | 2 | mnb: empty: there is no run.json in it; give the folder that `mnb jobs` wrote
bundle base.json | 2 | mnb: base.json: not a folder
bundle res --sign nowhere | 2 | mnb: --sign nowhere: no such file; make a key with ssh-keygen -t ed25519
verify res | 0 | verdict PASS of 16 rules; 17 not asked; unsigned; not checkable: R1, R28, R29, R30
verify res.tar.gz | 0 | verdict PASS of 17 rules; 17 not asked; unsigned; not checkable: R28, R29, R30
verify cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: Unterminated string
verify cut.tar.gz | 2 | mnb: cut.tar.gz: run.json: not a readable manifest: not JSON: Unterminated string
verify odd | 1 | verdict FAIL of 16 rules: R12, R13 broken (R12 quick.vae.J0.0.20260106-160004-123456.json: it ho
verify res --rules standard | 1 | verdict FAIL of 30 rules of 'standard': R2, R6, R7, R11, R15 broken (R2 a
verify res --rules rules.json | 0 | verdict PASS of 17 rules of 'mine'; 16 not asked; unsigned; not checkable: R1,
verify res --rules nowhere.json | 2 | mnb: --rules nowhere.json: no such file; the shipped ones are procurement
verify res --repeat 5 | 1 | verdict FAIL of 17 rules: R11 broken (R11 quick.toy_reg: 2 of 5 runs have records); 16
verify res --repeat 2.5 | 2 | mnb: --repeat 2.5: a whole number
verify res --allowed-signers nowhere | 2 | mnb: --allowed-signers nowhere: no such file; it holds the public
verify res --tsa-certs nowhere | 2 | mnb: --tsa-certs nowhere: no such file
verify res --nonce wrong | 1 | verdict FAIL of 17 rules: R9 broken (R9 the run was made without a nonce, 'wrong'
verify res --profile standard | 1 | verdict FAIL of 17 rules: R6 broken (R6 the profile is of SHA-256 e3ac4d9b4ab1,
verify base.json | 2 | mnb: base.json: not a bundle that `mnb bundle` made: it is not compressed by gzip
verify notes.txt | 2 | mnb: notes.txt: not a bundle that `mnb bundle` made: it is not compressed by gzip
verify nowhere | 2 | mnb: nowhere: no such folder or bundle
verify res -o old.txt | 2 | mnb: --output old.txt: the file exists; name another one, or say --force
accept res again | 4 | verdict the delivered node may or may not keep the guarantee of 0.97 of the bid
accept res again --guarantee 97% | 4 | verdict the delivered node may or may not keep the guarantee of 0.97 of the bid
accept res again --guarantee 0.97 | 4 | verdict the delivered node may or may not keep the guarantee of 0.97 of the
accept res again --guarantee 97 | 2 | mnb: --guarantee 97: a share of the bid's throughput, at most 1: write 0.97 or 97%
accept res again --guarantee much | 2 | mnb: --guarantee: 'much' is not a share; write a percentage such as 2%
accept res nowhere | 2 | mnb: nowhere: no such file or folder, and no baseline of that name is shipped; there are
accept res.tar.gz base.json | 4 | verdict the delivered node may or may not keep the guarantee of 0.97 of the bid
accept res | 2 | mnb accept: DELIVERED is missing; mnb accept --help has an example
bids bids.json | 0 | reference one node of again
bids again-bids.json | 0 | reference one node of res.tar.gz
bids bad-bids.json | 2 | mnb: bad-bids.json: bid 'acme': Object missing required field `price`; the form is
bids nowhere.json | 2 | mnb: nowhere.json: No such file or directory
bids notes.txt | 2 | mnb: notes.txt: not JSON: Expecting value (line 1, column 1)
bids bids.json -o old.txt | 2 | mnb: --output old.txt: the file exists; name another one, or say --force
bids bids.json --format html | 2 | mnb bids: Invalid value "html" for --format. Choose from: "table", "json", "csv",
bids | 2 | mnb bids: FILE is missing; mnb bids --help has an example
baseline | 0 | Usage: mnb baseline COMMAND
baseline show v100 | 0 | standard (v100)
baseline show v10 | 2 | mnb: v10: no such file or folder, and no baseline of that name is shipped (did you mean
baseline show base.json | 0 | quick (base.json)
baseline show nowhere | 2 | mnb: nowhere: no such file or folder, and no baseline of that name is shipped; there are
baseline build res | 0 | {
baseline build res --accept-shortfalls | 0 | {
baseline build res.tar.gz --accept-shortfalls | 0 | {
baseline build res --accept-shortfalls -o base.json | 2 | mnb: --output base.json: the file exists; name another one,
baseline build res --accept-shortfalls -o res/run.json --force | 2 | mnb: --output res/run.json: evidence of a run is
baseline build res --bound vae | 2 | mnb: --bound 'vae': wanted is TEST=CLASS, and a class is one of cpu, io, launch,
baseline build odd | 2 | mnb: odd is not fit for a baseline:
baseline build nowhere | 2 | mnb: nowhere: No such file or directory
baseline check v100 | 1 | test what cannot be
baseline check base.json | 0 | base.json: 7 tests, nothing implausible (compared with nothing)
baseline sho v100 | 2 | mnb baseline: Unknown command "sho". Did you mean "show"? mnb baseline --help lists them
jobs | 2 | mnb: name a profile (standard, quick or a file), or go on with a run: mnb resume FOLDER
jobs quik | 2 | mnb: quik: no such file, and no profile of that name is shipped (did you mean 'quick'?); there are che
jobs unet | 2 | mnb: unet: no such file, and no profile of that name is shipped (did you mean 'unet3d'?); there are
jobs nowhere.json | 2 | mnb: nowhere.json: no such file, and no profile of that name is shipped; there are
jobs profiles/standrad.json | 2 | mnb: profiles/standrad.json: no such file, and no profile of that name is shipped (did
rerun res/run.json | 2 | mnb: res/run.json: not the record of a launch of mnb
jobs list.json | 2 | mnb: list.json: must be an object of tests, not list
jobs empty | 2 | mnb: empty: a folder, and not a file
jobs quick --ram-total 1PiB | 2 | mnb: --ram-total: '1PiB' is not a size; write a number and a unit, such as 512MiB
jobs notes.txt | 2 | mnb: notes.txt: not JSON: Expecting value (line 1, column 1)
jobs quick --repeat 2.7 | 2 | mnb: --repeat 2.7: a whole number
jobs quick --repeat 0 | 2 | mnb: --repeat 0: at least 1
jobs quick --repeat many | 2 | mnb: --repeat many: a whole number
jobs quick --sessions 1.5 | 2 | mnb: --sessions 1.5: a whole number
jobs quick --sessions 0 | 2 | mnb: --sessions 0: at least 1
jobs quick --session-gap 6h | 2 | mnb: --session-gap 6h: there is one session; give --sessions too
jobs quick --sessions 3 --session-gap soon | 2 | mnb: --session-gap: 'soon' is not a duration
jobs quick --tenants 2.5 | 2 | mnb: --tenants 2.5: a whole number
jobs quick --retry -1 | 2 | mnb: --retry -1: at least 0
jobs quick --name vae loader | 2 | mnb: loader: neither an option nor its value; name several tests one by one,
jobs quick vae | 2 | mnb: vae: neither an option nor its value; name several tests one by one, --name vae, and put
jobs quick -n vae | 2 | mnb jobs: unknown option -n (did you mean --name or --nonce or --neighbors?)
jobs quick -v | 2 | mnb jobs: unknown option -v; mnb jobs --help lists the options
jobs quick --name vae -- batch_size=64 | 2 | mnb: batch_size=64: options of the workloads begin with dashes: --
jobs quick --nam vae | 2 | mnb jobs: unknown option --nam (did you mean '--name'?)
jobs quick --window 0 | 2 | mnb: --window 0: between 0.5 and 3600 seconds
jobs quick --window long | 2 | mnb jobs: --window long: a number
jobs quick --io-read | 2 | mnb jobs: --io-read: its value is missing; mnb jobs --help says what it takes
jobs quick --io-read fast | 2 | mnb: --io-read: 'fast'
jobs quick --io-write 1B/s | 2 | mnb: --io-write: '1B/s' is too little to work with; at least 1 MiB/s
jobs quick --order backwards | 2 | mnb jobs: Invalid value "backwards" for --order. Choose from: "file",
jobs quick --accept-difference node | 2 | mnb: --accept-difference is for --resume
jobs quick --weights nowhere.json | 2 | mnb: nowhere.json: No such file or directory
jobs quick --reserve-cores -1 | 2 | mnb: --reserve-cores -1: at least 0
jobs quick --ready-limit 0 | 2 | mnb: --ready-limit 0: a number of seconds above 0
jobs quick --ram-total much | 2 | mnb: --ram-total: 'much' is not a size; write a number and a unit, such as 512MiB
jobs quick --dataroot notes.txt | 2 | mnb: data root
jobs quick --nonce x --order file | 2 | mnb: --nonce 'x' seeds nothing: give it some text, and no other order than
jobs quick --target-ci 2% | 2 | mnb: --target-ci --repeat 1: the interval decides from 6 repeats on
jobs quick --repeat 8 --target-ci 0% | 2 | mnb: --target-ci 0: above 0 and below 100 %, such as 2%
jobs quick --repeat 8 --target-ci 2 | 2 | mnb: --target-ci 2: above 0 and below 100 %, such as 2%
jobs quick --repeat 8 --target-ci -2% | 2 | mnb jobs: --target-ci: its value is missing; -2% begins with a dash: write
jobs quick --repeat 8 --target-ci wide | 2 | mnb: --target-ci: 'wide' is not a share; write a percentage such as 2%
jobs quick --budget 30min | 2 | mnb: --budget --repeat 1: --repeat is the most repeats that there can be; give more
jobs quick --repeat 8 --budget 30 | 2 | mnb: --budget: '30' is not a duration; write a number and s, min or h, such as
jobs quick --repeat 8 --target-ci 2% --order file | 2 | mnb: --target-ci --order file: it ends a run between repeats
jobs quick --repeat 8 --target-ci 2% --sessions 2 | 2 | mnb: --target-ci --sessions 2: it ends a run of one session
jobs quick --nonce= | 2 | mnb: --nonce '' seeds nothing
jobs quick --dry-run -o notes.txt | 2 | mnb: -o
jobs quick --dry-run -o notes.txt/res | 2 | mnb: -o
jobs quick --dry-run -o res | 2 | mnb: -o
jobs quick --dry-run --pass-env NO_SUCH | 2 | mnb: --pass-env NO_SUCH: this variable is not set
jobs quick --price 3 | 2 | mnb jobs: unknown option --price; an option of the workload comes after --: mnb jobs ...
jobs quick --batch-size 64 | 2 | mnb jobs: unknown option --batch-size; an option of the workload comes after --: mnb
jobs --resume nowhere | 2 | mnb: nowhere/run.json: No such file or directory; name the folder of a run
jobs --resume empty | 2 | mnb: empty/run.json: No such file or directory; name the folder of a run
jobs --resume res | 2 | mnb: res: made by mnb 0.3.0: it cannot be resumed; start a new run
jobs quick --resume res --repeat 3 | 2 | mnb: a run goes on with the options of its first session: give only --retry,
jobs --resume res --tenants 2 | 2 | mnb: a run goes on with the options of its first session: give only --retry,
resume | 2 | mnb resume: FOLDER is missing; mnb resume --help has an example
resume nowhere | 2 | mnb: nowhere/run.json: No such file or directory; name the folder of a run
resume res | 2 | mnb: res: made by mnb 0.3.0: it cannot be resumed; start a new run
resume res --retry -1 | 2 | mnb: --retry -1: at least 0
resume res --repeat 3 | 2 | mnb resume: unknown option --repeat; mnb resume --help lists the options
run | 2 | mnb run: WORKLOAD is missing; mnb run --help has an example
run vae --batch-size 64 | 2 | mnb run: unknown option --batch-size; an option of the workload comes after --: mnb run
run vae --tenants 1.5 | 2 | mnb: --tenants 1.5: a whole number
run vae --isolation strong | 2 | mnb run: Invalid value "strong" for --isolation. Choose from: "auto", "full",
run vae -o nowhere/vae.json | 2 | mnb: -o
run vae -o res/run.json | 2 | mnb: -o
run vae -o base.json | 2 | mnb: -o
rerun | 2 | mnb rerun: RECORD is missing; mnb rerun --help has an example
rerun nowhere.json | 2 | mnb: nowhere.json: No such file or directory
rerun res | 2 | mnb: res: a folder, and not a file; give a record in it, such as res/quick.
rerun notes.txt | 2 | mnb: notes.txt: not a readable record: not JSON: Expecting value (line 1, column 1)
prepare | 2 | mnb prepare: PROFILE is missing; mnb prepare --help has an example
prepare quik | 2 | mnb: quik: no such file, and no profile of that name is shipped (did you mean 'quick'?); there are
prepare quick --data-scal 1 | 2 | mnb prepare: unknown option --data-scal (did you mean '--data-scale'?)
prepare quick --data-scale big | 2 | mnb prepare: --data-scale big
list quik | 2 | mnb: quik: no such file, and no profile of that name is shipped (did you mean 'quick'?); there are che
list notes.txt | 2 | mnb: notes.txt: not JSON: Expecting value (line 1, column 1)
list nowhere.json | 2 | mnb: nowhere.json: no such file, and no profile of that name is shipped; there are
stamp request nowhere | 2 | mnb: nowhere: there is no ledger.jsonl with a line in it
stamp add res nowhere | 2 | mnb: nowhere: No such file or directory
list res.tar.gz | 2 | mnb: res.tar.gz: compressed, as bundles are, and no text; to use a file that is in it, unpack it
jobs res.tar.gz --dry-run | 2 | mnb: res.tar.gz: compressed, as bundles are, and no text; to use a file that is in it,
verify res --rules res.tar.gz | 2 | mnb: res.tar.gz: compressed, as bundles are, and no text; to use a file that is in
report res --weights res.tar.gz | 2 | mnb: res.tar.gz: compressed, as bundles are, and no text; to use a file that is in
list res | 2 | mnb: res: a folder, and not a file
report res --compare h100 | 2 | mnb: h100: no such file or folder, and no baseline of that name is shipped (did you mean
report res --compare V100 | 2 | mnb: V100: no such file or folder, and no baseline of that name is shipped (did you mean
bids res | 2 | mnb: res: a folder, and not a file
bids list.json | 2 | mnb: list.json: Expected `object`, got `array`; the form is
schema | 2 | mnb schema: KIND is missing; mnb schema --help has an example
schema profil | 2 | mnb schema: Invalid value "profil" for KIND. Choose from: "profile", "record", "event",
schema profile | 0 | {
doctor --tenants 0 | 2 | mnb: --tenants 0: at least 1
doctor --slots-per-device 0 | 2 | mnb: --slots-per-device 0: at least 1, at most 26
doctor --slots-per-device 27 | 2 | mnb: --slots-per-device 27: at least 1, at most 26
doctor --tenants 1.5 | 2 | mnb: --tenants 1.5: a whole number
doctor --tenants 1000 | 2 | mnb: --tenants 1000: this node has
doctor --ram-total much | 2 | mnb: --ram-total: 'much' is not a size
doctor --gpus nobody | 2 | mnb: --gpus nobody: this node shows no GPU; mnb doctor says what it sees
--version | 0 | 0.3.0
--hlp | 2 | mnb: Unknown command "--hlp". mnb --help lists them
help | 2 | mnb: Unknown command "help". mnb --help lists them
reprt res | 2 | mnb: Unknown command "reprt". Did you mean "report"? mnb --help lists them
interference | 2 | mnb: interference is a profile: mnb jobs interference
baseline standard | 2 | mnb baseline: Unknown command "standard". mnb baseline --help lists them
jbs quick | 2 | mnb: Unknown command "jbs". Did you mean "jobs"? mnb --help lists them
"""


def rows() -> list[tuple[str, int, str]]:
    """The table's lines: command, exit code and the beginning of the first line."""
    cells = [line.split(" |") for line in TABLE.strip().splitlines()]
    return [(command.strip(), int(code), begins.strip()) for command, code, begins in cells]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "code", "begins"), rows(), ids=[row[0] for row in rows()])
def test_a_command(capfd: pytest.CaptureFixture[str], command: str, code: int, begins: str) -> None:
    found = call(shlex.split(command))
    out, err = capfd.readouterr()
    first = next((line for line in (*out.splitlines(), *err.splitlines()) if line.strip()), "")
    assert (found, " ".join(first.split())[: len(begins)]) == (code, begins), f"{out[:300]}{err[:1000]}"
    assert "Traceback" not in err
