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
    shutil.copytree(place / "res", place / "around" / "res")
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
report cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: a text has no closing quotation mark
report runs | 2 | mnb: runs: not a result folder: it has no run.json. Give the folder
report cut.tar.gz | 2 | mnb: cut.tar.gz: run.json: not a readable manifest: not JSON: a text has no closing
report odd | 1 | mnb · quick · odd
report again --compare res | 0 | mnb · quick · again
report res --compare base.json | 0 | mnb · quick · res
report res --compare res.tar.gz | 0 | mnb · quick · res
report res.tar.gz | 0 | mnb · quick · res.tar.gz
report res.tar.gz --rules rules.json | 0 | mnb · quick · res.tar.gz
report base.json | 0 | mnb · quick · base.json
report base.json --rules rules.json | 2 | mnb: --rules rules.json: base.json is neither a result folder nor a bundle.
report base.json --compare v100 | 0 | mnb · quick · base.json
report res --compare v100 h200 | 0 | mnb · quick · res
report --compare base.json res | 0 | mnb · quick · res
report --compare base.json v100 res | 0 | mnb · quick · res
report --compare base.json --compare v100 res | 0 | mnb · quick · res
report --compare base.json res --compare v100 | 2 | mnb: report: unclear which word is the folder. Put it before
report --compare base.json --compare v100 | 2 | mnb: report: FOLDER is missing. Write mnb report FOLDER
report --compare base.json | 2 | mnb: report: FOLDER is missing. Write mnb report FOLDER --compare base.json
report --compare v100 res again --layout interference | 2 | mnb: report --compare v100 res again: unclear which
report --compare | 2 | mnb report: --compare: value missing. See mnb report --help
report | 2 | mnb: report: FOLDER is missing. Write mnb report FOLDER --compare v100
report res --compare | 2 | mnb report: --compare: value missing. See mnb report --help
report res --margin -1% | 2 | mnb report: --margin: expected a value of at least 0, got -1%
report h200 | 2 | mnb: h200: no such file or folder. For the shipped baseline, use mnb
report res --compare a,b | 2 | mnb: --compare a,b: no such file or folder, and no shipped baseline has that name. One
report res --compare h20 | 2 | mnb: --compare h20: no such file or folder, and no shipped baseline has that name (did
report res --compare nowhere.json | 2 | mnb: --compare nowhere.json: no such file or folder, and no shipped baseline
baseline show nosuch | 2 | mnb: nosuch: no such file or folder, and no shipped baseline has that name. mnb baseline list
report res --price 300,000 | 0 | mnb · quick · res
report res --price 300000 | 0 | mnb · quick · res
report res --price 15000.50 --price-per gpu | 0 | mnb · quick · res
report res --price 3e5 | 0 | mnb · quick · res
report res --price -5 | 2 | mnb: --price: expected an amount above 0, got '-5'. Try 300000, 300,000 or
report res --price a-lot | 2 | mnb: --price: expected an amount above 0, got 'a-lot'. Try 300000, 300,000 or
report res --price 30,00 | 2 | mnb: --price: expected an amount above 0, got '30,00'. Try 300000, 300,000 or
report res --price-per gpu | 2 | mnb: --price-per needs a price. Add --price
report res --price 1 --price-per rack | 2 | mnb report: Invalid value "rack" for --price-per. Choose from: "node",
accept a100.json res --guarantee 150% | 2 | mnb: --guarantee: expected a share above 0% and up to 100%, got '150%'. Try
report res --tariff 0,20 | 2 | mnb: --tariff: expected a number above 0, got '0,20'. Try --tariff 0.20
report res --margin 2 | 2 | mnb: --margin: expected a share above 0% and up to 100%, got '2'. 2% is 0.02
report res --margin 0 | 2 | mnb: --margin: expected a share above 0% and up to 100%, got '0'. Try 97%, 2.5%
report res -o - | 2 | mnb report: -o: expected a name, got -. To write to the terminal, leave -o out
report res --margin 5% | 0 | mnb · quick · res
report res --margin two | 2 | mnb: --margin: expected a percentage, got 'two', not one such as 97%
report res --format jsn | 2 | mnb report: Invalid value "jsn" for --format. Choose from: "table", "json", "csv",
report res --format html | 2 | mnb report: --format html: it has an option of its own. Write --html
report res --format json | 0 | {
report res --format csv | 0 | test,unit,weight,n,fail,perf (unit/s),+-95 % (%),std (%),devices
report res --format markdown | 0 | # mnb report: quick
verify nowhere -o page.html | 2 | mnb: --output page.html: it writes no pages. mnb report and mnb bids do
report res -o page.html | 2 | mnb: --output page.html: it writes no pages. mnb report and mnb bids do: --html page.html
report res --layout cv -o it.json | 2 | mnb: --layout cv: a suite's layout has no JSON form. Use CSV
report res --layout cv --format json | 2 | mnb: --layout cv: a suite's layout has no JSON form. Use CSV
report nowhere --layout cv --format json | 2 | mnb: --layout cv: a suite's layout has no JSON form. Use CSV
report res --layout cv | 2 | mnb: --layout cv: res has no measured test of that suite; run mnb jobs cv
report res --layout cv --format csv | 2 | mnb: --layout cv: res has no measured test of that suite; run mnb jobs cv
report res --per-gpu | 0 | mnb · quick · res
report res --per-gpu --format csv | 0 | test,device,mean (% of best mean),min (% of best min),max (% of best max)
bids nots.txt | 2 | mnb: nots.txt: no such file (did you mean 'notes.txt'?)
report res --weights nowhere/w.json | 2 | mnb: --weights nowhere/w.json: the folder nowhere does not exist. It should
report res --weights emtpy/w.json | 2 | mnb: --weights emtpy/w.json: the folder emtpy does not exist (did you mean
jobs res.tar.gz | 2 | mnb: res.tar.gz: compressed, like a bundle, which mnb report and mnb verify read.
report res --weights notes.txt | 2 | mnb: notes.txt: not JSON: expected a value (line 1, column 1)
report res --rules standard | 1 | mnb · quick · res
report res --rules rules.json --nonce other | 1 | mnb · quick · res
report res --nonce other | 2 | mnb: --nonce other: only rules ask for it. Add --rules
report res -n 5 | 2 | mnb report: unknown option -n (did you mean --nonce?)
report res --rules rules.json | 0 | mnb · quick · res
report res --rules odd-rules.json | 2 | mnb: odd-rules.json: unknown key 'repeats' (did you mean 'repeat'?)
report res --rules nowhere.json | 2 | mnb: --rules nowhere.json: no such file. Shipped rules: procurement
report res --colour | 2 | mnb report: unknown option --colour. See mnb report --help
report res --forma json | 2 | mnb report: unknown option --forma (did you mean '--format'?)
report nowhere | 2 | mnb: nowhere: no such file or folder. Give a bundle, or the folder
report empty | 2 | mnb: empty: not a result folder: it has no record and no run.json.
report notes.txt | 2 | mnb: notes.txt: not JSON: expected a value (line 1, column 1). Is it
report res/run.json | 2 | mnb: res/run.json: this is the manifest of a run. Give its folder to mnb report or mnb
report res -o new.txt | 0 |
report res -o old.txt --force | 0 |
report res -o res/ledger.jsonl --force | 2 | mnb: --output res/ledger.jsonl: files of a run are never overwritten.
report res --html new.html | 0 | mnb · quick · res
report res --tables tables | 0 | mnb · quick · res
report "" | 2 | mnb: argument 2 is empty. Is a shell variable unset?
report res --tables "" | 2 | mnb: argument 4 is empty. Is a shell variable unset?
accept "" res | 2 | mnb: argument 2 is empty
report list.json | 2 | mnb: list.json: not a summary. Give a result folder, or a file that `mnb summary -o` wrote
report empty.json | 2 | mnb: empty.json: the file is empty
report wide.json | 2 | mnb: wide.json: begins with the byte order mark of UTF-16. Save it as UTF-8 without one
report /dev/zero | 2 | mnb: /dev/zero: a device, not a file. Name a file
report res --price 0 | 2 | mnb: --price: expected an amount above 0, got '0'. Try 300000, 300,000 or
report res --price 1e400 | 2 | mnb: --price: expected an amount above 0, got '1e400'. Try 300000, 300,000 or
report res odd | 2 | mnb: odd: a second folder needs --layout interference. To compare
summary res | 0 | {
summary res.tar.gz | 0 | {
summary base.json | 0 | {
summary res -o new.json | 0 |
summary odd | 1 | {
summary cut | 2 | mnb: cut: run.json: not a readable manifest
summary nowhere | 2 | mnb: nowhere: no such file or folder. Give a bundle, or the folder
summary empty | 2 | mnb: empty: not a result folder: it has no record and no run.json.
summary res --format 2020 | 0 | {
summary res --format 2021 | 2 | mnb summary: Invalid value "2021" for --format. Choose from: "mnb", "2020". Did you
summary | 2 | mnb summary: FOLDER is missing. See the example in mnb summary --help
bundle res -o new.tar.gz | 0 | bundle: new.tar.gz
bundle res -o res.tar.gz --force | 0 | bundle: res.tar.gz
bundle res -o res/run.json --force | 2 | mnb: --output res/run.json: files of a run are never overwritten.
bundle cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: a text has no closing quotation mark
bundle ress | 2 | mnb: ress: no such folder (did you mean 'res'?). Give the result folder of a run
fleet status ress | 2 | mnb: ress: no such folder (did you mean 'res'?). Give the folder that `mnb
watch res.tar.gz | 2 | mnb: res.tar.gz: a bundle has no events to watch or to replay. Name the result folder
watch ress | 2 | mnb: ress: no such folder (did you mean 'res'?). Name the result folder of a run
bundle nowhere | 2 | mnb: nowhere: no such folder
bundle empty | 2 | mnb: empty: no run.json in it. Give the folder that `mnb jobs` wrote
bundle around | 2 | mnb: around: no run.json in it. Name a run in it: around/res
verify around | 2 | mnb: around: no run.json in it. Name a run in it: around/res
resume around | 2 | mnb: around/run.json: no such file. Name a run in it: around/res
bundle res.tar.gz | 2 | mnb: res.tar.gz: a bundle already. To check it, run mnb verify res.tar.gz
bundle base.json | 2 | mnb: base.json: a file, not a folder. Give the result folder of a run
bundle res --sign notes.txt | 2 | mnb: --sign notes.txt: not a private key. Make one with
bundle res --sign nowhere | 2 | mnb: --sign nowhere: no such file. Make a key with ssh-keygen -t ed25519
verify res | 0 | verdict PASS: all 16
verify res.tar.gz | 0 | verdict PASS: all 17
verify cut | 2 | mnb: cut: run.json: not a readable manifest: not JSON: a text has no closing quotation mark
verify cut.tar.gz | 2 | mnb: cut.tar.gz: run.json: not a readable manifest: not JSON: a text has no closing
verify odd | 1 | verdict FAIL: 2
verify res --rules standard | 1 | verdict FAIL:
verify res --rules rules.json | 0 | verdict PASS: all 17
verify res --repeat 5 | 1 | verdict FAIL: 1
verify res --repeat 2.5 | 2 | mnb: --repeat: expected a whole number, got '2.5'. Try --repeat 5
verify res --nonce wrong | 1 | verdict FAIL: 1
verify res --profile standard | 1 | verdict FAIL: 1
verify base.json | 2 | mnb: base.json: this is a summary or a baseline. Give a bundle or a result folder
verify notes.txt | 2 | mnb: notes.txt: not a bundle made by `mnb bundle`: it is not compressed by gzip
verify empty.json | 2 | mnb: empty.json: not a bundle made by `mnb bundle`: it is empty
verify ress | 2 | mnb: ress: no such folder or bundle (did you mean 'res'?)
report ress | 2 | mnb: ress: no such file or folder (did you mean 'res'?)
accept res ress | 2 | mnb: ress: no such file or folder, and no shipped baseline has that name (did you mean
verify nowhere | 2 | mnb: nowhere: no such folder or bundle. Give a bundle, or the
accept res again | 4 | verdict INCONCLUSIVE: cannot tell whether the node reaches 97% of the
accept res again --guarantee 97% | 4 | verdict INCONCLUSIVE: cannot tell whether the node reaches 97% of the
accept res again --guarantee 0.97 | 4 | verdict INCONCLUSIVE: cannot tell whether the node reaches 97% of the
accept res again --guarantee 97 | 2 | mnb: --guarantee: expected a share above 0% and up to 100%, got '97'
accept res again --guarantee much | 2 | mnb: --guarantee: expected a percentage, got 'much', not one such as 97%
accept res ./res | 2 | mnb: res: given as the bid and as the delivery. Each needs its own measurement
accept res nowhere | 2 | mnb: nowhere: no such file or folder, and no shipped baseline has
accept res.tar.gz base.json | 2 | mnb: delivered is the same run as bid: they have the run id
accept res | 2 | mnb accept: DELIVERED is missing. See the example in mnb accept --help
bids bids.json | 0 | ranks nothing is ranked: fewer than two bids
bids again-bids.json | 0 | ranks nothing is ranked: fewer than two bids
bids bad-bids.json | 2 | mnb: bad-bids.json: bid 'acme': the key 'price' is missing. Expected {"reference": "v100",
bids nowhere.json | 2 | mnb: nowhere.json: no such file. Write one with mnb tender init
bids res.tar.gz | 2 | mnb: res.tar.gz: a bundle, not a bids file. Name it as results in a file that mnb tender
bids notes.txt | 2 | mnb: notes.txt: not JSON: expected a value (line 1, column 1)
bids bids.json --format html | 2 | mnb bids: --format html: it has an option of its own. Write --html
bids | 2 | mnb bids: FILE is missing. See the example in mnb bids --help
baseline | 0 | Usage: mnb baseline COMMAND
baseline show v100 | 0 | standard (v100)
baseline show v10 | 2 | mnb: v10: no such file or folder, and no shipped baseline has that
baseline show base.json | 0 | quick (base.json)
baseline show res.tar.gz | 0 | quick (res.tar.gz)
baseline show nowhere | 2 | mnb: nowhere: no such file or folder, and no shipped baseline has
baseline build res | 0 | {
baseline build res --accept-shortfalls | 0 | {
baseline build res.tar.gz --accept-shortfalls | 0 | {
baseline build res --bound vae | 2 | mnb: --bound 'vae': expected TEST=CLASS, with a class of cpu, io,
baseline build odd | 2 | mnb: odd is not suitable as a baseline:
baseline build nowhere | 2 | mnb: nowhere: no such file or folder. Give a bundle, or the folder
baseline check v100 | 1 | test implausible values
baseline check base.json | 0 | base.json: 7 tests, nothing implausible (compared with no other
baseline sho v100 | 2 | mnb baseline: unknown command 'sho' (did you mean 'show'?). See mnb
jobs | 2 | mnb: no profile given. Name one (standard, quick or a file), or resume a run: mnb resume FOLDER
jobs quik | 2 | mnb: quik: no such file, and no shipped profile has that name (did
jobs unet | 2 | mnb: unet: no such file, and no shipped profile has that name (did
jobs nowhere.json | 2 | mnb: nowhere.json: no such file, and no shipped profile has that
jobs profiles/standrad.json | 2 | mnb: profiles/standrad.json: no such file, and no shipped profile has
rerun res/run.json | 2 | mnb: res/run.json: this is the manifest of a run, not a record. Give a record in res
jobs list.json | 2 | mnb: list.json: must be an object of tests, not list
jobs empty | 2 | mnb: empty: a folder, and no shipped profile has that name. For results: mnb report
jobs quick --ram-total 1PiB | 2 | mnb: --ram-total: expected a size, got '1PiB'. Try 512MiB or 256GiB
jobs notes.txt | 2 | mnb: notes.txt: not JSON: expected a value (line 1, column 1)
jobs quick --repeat 2.7 | 2 | mnb: --repeat: expected a whole number, got '2.7'. Try --repeat 5
jobs quick --repeat 0 | 2 | mnb: --repeat: expected 1 to 10,000, got 0
jobs quick --sessions 100000 | 2 | mnb: --sessions: expected 1 to 10,000, got 100000
jobs stress --name stress.cpu --neighbors disk | 2 | mnb: profile stress: no test 'stress.cpu' (did you mean 'cpu'?)
watch notes.txt | 2 | mnb: notes.txt: a file, not a folder. Name the result folder
jobs quick --repeat many | 2 | mnb: --repeat: expected a whole number, got 'many'. Try --repeat 5
jobs quick --sessions 1.5 | 2 | mnb: --sessions: expected a whole number, got '1.5'. Try --sessions 5
jobs quick --sessions 0 | 2 | mnb: --sessions: expected 1 to 10,000, got 0
jobs quick --session-gap 6h | 2 | mnb: --session-gap needs several sessions. Add --sessions 3
jobs quick --sessions 3 --session-gap soon | 2 | mnb: --session-gap: expected a duration with its unit (s, min or h)
jobs quick --tenants 2.5 | 2 | mnb: --tenants: expected a whole number, got '2.5'. Try --tenants 5
jobs quick --retry -1 | 2 | mnb: --retry: expected at least 0, got -1
jobs quick --name vae loader | 2 | mnb: loader: unexpected word. To select several tests, write --name
jobs quick standard | 2 | mnb: standard: one profile at a time. Run it on its own: mnb jobs standard
jobs quick profile.json | 2 | mnb: profile.json: one profile at a time. Run it on its own
jobs quick vae | 2 | mnb: vae: unexpected word. To select several tests, write --name vae.
jobs quick -n vae | 2 | mnb jobs: unknown option -n (did you mean --name or --nonce or
jobs quick -v | 2 | mnb jobs: unknown option -v. See mnb jobs --help
jobs quick --name vae -- batch_size=64 | 2 | mnb: batch_size=64: workload options begin with dashes. Write --
jobs quick --session 3 | 2 | mnb jobs: unknown option --session (did you mean '--sessions'?)
jobs quick --reps 3 | 2 | mnb jobs: unknown option --reps (did you mean '--repeat'?)
jobs quick --session-gap 6 hours | 2 | mnb: hours: unexpected word. Write a number and its unit as one word
jobs quick --nam vae | 2 | mnb jobs: unknown option --nam (did you mean '--name'?)
jobs quick --window 0 | 2 | mnb: --window: expected 0.5 to 3600 seconds, got 0
jobs quick --window long | 2 | mnb jobs: --window: expected a number without a unit, got 'long'
jobs quick --io-read | 2 | mnb jobs: --io-read: value missing. See mnb jobs --help
jobs quick --io-read fast | 2 | mnb: --io-read: expected a bandwidth
jobs quick --io-write 1B/s | 2 | mnb: --io-write: expected at least 1 MiB/s, got '1B/s'
jobs quick --order none | 2 | mnb jobs: Invalid value "none" for --order. Choose from: "file", "interleaved",
jobs quick --window none | 2 | mnb jobs: --window: expected a number without a unit, got 'none'
verify res --require none | 2 | mnb verify: Invalid value "none" for --require. Choose from: "full".
report res --layout null | 2 | mnb report: Invalid value "null" for --layout. Choose from: "cv",
jobs quick --order backwards | 2 | mnb jobs: Invalid value "backwards" for --order. Choose from: "file",
jobs quick --accept-difference node | 2 | mnb: --accept-difference needs --resume
jobs quick --weights nowhere.json | 2 | mnb: --weights nowhere.json: no such file. It should hold weights by test, in
jobs quick --reserve-cores -1 | 2 | mnb: --reserve-cores: expected at least 0, got -1
jobs quick --ready-limit 0 | 2 | mnb: --ready-limit: expected a number of seconds above 0, got 0
jobs quick --ram-total 512 | 2 | mnb: --ram-total: 512 without a unit is 512 B. Did you mean 512GiB?
doctor --ram-total 64 | 2 | mnb: --ram-total: 64 without a unit is 64 B. Did you mean 64GiB?
jobs quick --io-read 100/s | 2 | mnb: --io-read: 100 without a unit is 100 B. Did you mean 100MiB/s?
jobs quick --ram-total much | 2 | mnb: --ram-total: expected a size, got 'much'. Try 512MiB or 256GiB
jobs quick --dry-run --dataroot /proc/none | 2 | mnb: the datasets of vae, loader, convnet must be made in
jobs quick --dataroot notes.txt | 2 | mnb: data root
jobs quick --nonce x --order file | 2 | mnb: --nonce: must not be empty, and needs --order random
jobs quick --target-ci 2% | 2 | mnb: --target-ci needs more than 6 repeats, and --repeat 1 is the
jobs quick --repeat 8 --target-ci 0% | 2 | mnb: --target-ci: expected a share above 0% and up to 100%, got
jobs quick --repeat 8 --target-ci 2 | 2 | mnb: --target-ci: expected a share above 0% and up to 100%, got '2'. 2%
jobs quick --repeat 8 --target-ci -2% | 2 | mnb jobs: --target-ci: expected a value of at least 0, got -2%
jobs quick --repeat 8 --target-ci wide | 2 | mnb: --target-ci: expected a percentage, got 'wide', not one such as 97%
jobs quick --budget 30min | 2 | mnb: --budget needs several repeats, and --repeat is the upper limit. Try --repeat 10
jobs quick --repeat 8 --budget 30 | 2 | mnb: --budget: expected a duration with its unit (s, min or h), got
jobs quick --repeat 8 --target-ci 2% --order file | 2 | mnb: --target-ci cannot be combined with --order file. Leave
jobs quick --repeat 8 --target-ci 2% --sessions 2 | 2 | mnb: --target-ci cannot be combined with --sessions 2. Leave
jobs quick --nonce= | 2 | mnb: --nonce: must not be empty, and needs --order random
jobs quick --dry-run -o notes.txt | 2 | mnb: -o
jobs quick --dry-run -o notes.txt/res | 2 | mnb: -o
jobs quick --dry-run -o res | 2 | mnb: -o
jobs quick --dry-run --pass-env NCCL_DEBUG=INFO | 2 | mnb: --pass-env NCCL_DEBUG=INFO: give only the name, NCCL_DEBUG
jobs quick --dry-run --pass-env NO_SUCH | 2 | mnb: --pass-env NO_SUCH: this variable is not set
jobs quick --price 3 | 2 | mnb jobs: unknown option --price, which is an option of mnb report. See mnb jobs --help
jobs --profile quick | 2 | mnb jobs: --profile: PROFILE is named without an option. Write mnb jobs quick
report --folder=res | 2 | mnb report: --folder: FOLDER is named without an option. Write mnb report res
jobs vae | 2 | mnb: vae is a workload, not a profile. Run it with: mnb run vae
report res/ledger.jsonl | 2 | mnb: res/ledger.jsonl: a JSON value in each line, as in a ledger, not one. Give
jobs quick,vae --dry-run | 2 | mnb: quick,vae: no such file, and no shipped profile has that name. Run one profile at a
list res | 2 | mnb: res: a folder, and no shipped profile has that name. For results: mnb report
list toy_reg | 2 | mnb: toy_reg is a workload, not a profile. Run it with: mnb run toy_reg
jobs quick --name vae,loader | 2 | mnb: --name vae,loader: one test at a time. Write --name vae --name loader
run vae quick | 2 | mnb: quick: unexpected word. One workload at a time. Put workload options after --
run vae batch_size=3 | 2 | mnb: batch_size=3: workload options begin with dashes. Write -- --batch_size 3
report res --gpu 0 | 2 | mnb report: unknown option --gpu (did you mean '--per-gpu'?)
report res --csv | 2 | mnb report: unknown option --csv. Write --format csv
verify res --signers x | 2 | mnb verify: unknown option --signers (did you mean '--allowed-signers'?)
jobs quick --only vae | 2 | mnb jobs: unknown option --only. See mnb jobs --help
jobs quick --batch-size 64 | 2 | mnb jobs: unknown option --batch-size. Workload options go after --: mnb
jobs --resume nowhere | 2 | mnb: nowhere/run.json: the folder nowhere does not exist. Name the folder of a run
jobs --resume empty | 2 | mnb: empty/run.json: no such file. Name the folder of a run
jobs --resume res | 2 | mnb: res: made by mnb 0.3.0: it cannot be resumed. Start a new run
jobs quick --resume res --repeat 3 | 2 | mnb: a resumed run keeps the options of its first session. With
jobs --resume res --tenants 2 | 2 | mnb: a resumed run keeps the options of its first session. With
fleet run quick --launcher local -o f | 2 | mnb: --launcher local: say how many nodes to start. Try --nodes 2
fleet run quick --launcher local --nodes 0 -o f | 2 | mnb: --nodes: expected at least 1, got 0
fleet render slurm quick --nodes 0 -o f | 2 | mnb: --nodes: expected at least 1, got 0
fleet run quick --launcher locl --nodes 2 -o f | 2 | mnb: unknown launcher 'locl' (did you mean 'local'?)
fleet run quick --launcher local --nodes 2 --hosts a -o f | 2 | mnb: --launcher local takes --nodes N, and neither
fleet run quick --launcher local --nodes 2 --jobs '-o x' -o f | 2 | mnb: the fleet decides where nodes write. Leave -o
fleet run quick --launcher local --nodes 2 --jobs '--dry-run' -o f | 2 | mnb: --jobs: --dry-run runs nothing. To see the
fleet run quick --launcher local --nodes 2 --jobs '--name nosuch' -o f | 2 | mnb: profile quick: no test 'nosuch'.
fleet run quick --launcher local --nodes 2 --jobs '-- --batch-size x' -o f | 2 | mnb:
fleet run quick --launcher local --nodes 2 --jobs '--name vae -- --batchsize 8' -o f | 2 | mnb:
fleet run quick --launcher local --nodes 2 --jobs '--for 1h' -o f | 2 | mnb:
fleet run quick --launcher local --nodes 2 --jobs '--total-limit 2' -o f | 2 | mnb: test quick.toy_reg: its total time
fleet run quick --launcher local --nodes 2 --jobs '--order random --nonce=' -o f | 2 | mnb: --nonce: must not be empty
fleet run quick --launcher local --nodes 2 --jobs '--repeat 0' -o f | 2 | mnb: --repeat: expected 1 to 10,000, got
fleet run quick --launcher local --nodes 2 --jobs '--name vae' --over-nodes -o f | 2 | mnb: --over-nodes:
fleet run quick --launcher local --nodes 1 --network -o f | 2 | mnb: --network: nodes meet in pairs, and there is one.
fleet run quick --launcher local --nodes 2 --node-folder there -o f | 2 | mnb: --node-folder there: expected a path from
fleet run quick --launcher local --nodes 2 -o /proc/f | 2 | mnb: -o /proc/f: /proc is not writable
fleet run quick --launcher local --nodes 1000 -o f | 2 | mnb: --nodes 1000: nodes of --launcher local share
fleet run quick --launcher local --nodes 2 --jobs '--rules rules.json' -o f | 2 | mnb: --jobs: nodes do not work in
fleet run quick --launcher local --nodes 2 --jobs --repeat 3 -o f | 2 | mnb: --jobs --repeat: value missing. Quote all
fleet run quick --launcher local --nodes 2 --jobs '--repat 3' -o f | 2 | mnb jobs: unknown option --repat (did you
fleet run quick --launcher local -o f --repeat 3 | 2 | mnb fleet run: --repeat is of mnb jobs. Try --jobs '--repeat 3'
fleet render kubernetes | 2 | mnb fleet render: unknown command 'kubernetes'. Known: slurm, k8s
fleet next | 2 | mnb fleet: unknown command 'next'. Known: plan, render, run, adopt, resume, collect, status. See
list datasets | 2 | mnb: datasets: not a profile. To list all workloads and datasets, write mnb list
fleet render slurm quick -o f --isolation=full | 2 | mnb fleet render slurm: --isolation is of mnb jobs. Try --jobs '
fleet report acceptance | 2 | mnb fleet: report is a command of its own. Write mnb report acceptance
fleet run quck --launcher local --nodes 2 -o f | 2 | mnb: quck: no such file, and no shipped profile has that name
fleet run quick --launcher local --nodes 2 -o res | 2 | mnb: -o res: already contains 'ledger.jsonl'. Name a new folder
fleet run quick | 2 | mnb fleet run: --launcher is missing. How nodes are reached: local, slurm, ssh. See
fleet plan | 2 | mnb fleet plan: --nodes is missing
help | 2 | mnb: unknown command 'help' (did you mean '--help'?)
version | 2 | mnb: unknown command 'version' (did you mean '--version'?)
fleet plan --nodes 3 | 2 | mnb: --nodes 3 --devices 8: expected 4 to 100,000 nodes of 1 to 1,000 devices
fleet plan --nodes 512 --slow 500% | 2 | mnb: --slow: expected a share above 0% and up to 100%, got '500%'
fleet plan quck --nodes 512 | 2 | mnb: quck: no such file, and no shipped profile has that name
fleet plan --nodes 512 --repeat-time soon | 2 | mnb: --repeat-time: expected a duration
fleet status res | 2 | mnb: res: not a fleet folder: it has no fleet.json
fleet resume res | 2 | mnb: res: not a fleet folder: it has no fleet.json
fleet adopt missing | 2 | mnb: missing: no such folder
fleet adopt runs | 2 | mnb: runs: no results of nodes in runs/nodes/NODE/screen (or screen.tar.gz). Some are in runs/cut
fleet collect missing | 2 | mnb: missing: no such folder
resume | 2 | mnb resume: FOLDER is missing. See the example in mnb resume --help
resume nowhere | 2 | mnb: nowhere/run.json: the folder nowhere does not exist. Name the folder of a run
resume res | 2 | mnb: res: made by mnb 0.3.0: it cannot be resumed. Start a new run
resume res --retry -1 | 2 | mnb: --retry: expected at least 0, got -1
resume res --repeat 3 | 2 | mnb resume: unknown option --repeat, which is an option of mnb jobs, mnb verify. See
run | 2 | mnb run: WORKLOAD is missing. See the example in mnb run --help
run vae --batch-size 64 | 2 | mnb run: unknown option --batch-size. Workload options go after --: mnb run
run vae --tenants 1.5 | 2 | mnb: --tenants: expected a whole number, got '1.5'. Try --tenants 5
run vae --isolation strong | 2 | mnb run: Invalid value "strong" for --isolation. Choose from: "auto", "full",
run vae -o nowhere/vae.json | 2 | mnb: -o
run vae -o res/run.json | 2 | mnb: -o
run vae -o base.json | 2 | mnb: -o
rerun | 2 | mnb rerun: RECORD is missing. See the example in mnb rerun --help
rerun base.json --name ram | 2 | mnb rerun: unknown option --name, which is an option of mnb prepare, mnb jobs. See
rerun nowhere.json | 2 | mnb: nowhere.json: no such file. Give a file of a result folder, such as
rerun res | 2 | mnb: res: this is a folder, not a record. Give a record in res, such as res/quick.
rerun notes.txt | 2 | mnb: notes.txt: not a readable record: not JSON: expected a value (line 1, column 1)
prepare | 2 | mnb prepare: PROFILE is missing. See the example in mnb prepare --help
prepare quik | 2 | mnb: quik: no such file, and no shipped profile has that name (did
prepare quick --data-scal 1 | 2 | mnb prepare: unknown option --data-scal (did you mean '--data-scale'?)
prepare quick --data-scale big | 2 | mnb prepare: --data-scale: expected a number without a unit, got 'big'
list quik | 2 | mnb: quik: no such file, and no shipped profile has that name (did
list notes.txt | 2 | mnb: notes.txt: not JSON: expected a value (line 1, column 1)
list nowhere.json | 2 | mnb: nowhere.json: no such file, and no shipped profile has that
stamp request nowhere | 2 | mnb: nowhere: no such folder. Give the folder
stamp add res nowhere | 2 | mnb: nowhere: no such file
list res.tar.gz | 2 | mnb: res.tar.gz: compressed, like a bundle, which mnb report
jobs res.tar.gz --dry-run | 2 | mnb: res.tar.gz: compressed, like a bundle, which mnb report
verify res --rules res.tar.gz | 2 | mnb: res.tar.gz: compressed, like a bundle, which mnb report
report res --weights res.tar.gz | 2 | mnb: res.tar.gz: compressed, like a bundle, which mnb report
report res --compare h100 | 2 | mnb: --compare h100: no such file or folder, and no shipped baseline has that name. For
report res --compare V100 | 2 | mnb: --compare V100: no such file or folder, and no shipped baseline has that name
bids res | 2 | mnb: res: a folder, not a file
bids list.json | 2 | mnb: list.json: expected an object, got a list. Expected {"reference": "v100", "bids": {"acme":
schema | 2 | mnb schema: KIND is missing. See the example in mnb schema --help
schema profil | 2 | mnb schema: Invalid value "profil" for KIND. Choose from: "profile", "record", "event",
schema profile | 0 | {
doctor --tenants 0 | 2 | mnb: --tenants: expected at least 1, got 0
doctor --slots-per-device 0 | 2 | mnb: --slots-per-device: expected 1 to 26, got 0
doctor --slots-per-device 27 | 2 | mnb: --slots-per-device: expected 1 to 26, got 27
doctor --tenants 1.5 | 2 | mnb: --tenants: expected a whole number, got '1.5'. Try --tenants 5
doctor --tenants 1000 | 2 | mnb: --tenants 1000: this node has
doctor --ram-total much | 2 | mnb: --ram-total: expected a size, got 'much'. Try 512MiB or 256GiB
doctor --rules nowhere.json | 2 | mnb: --rules nowhere.json: no such file. Shipped rules: procurement
doctor --gpus nobody | 2 | mnb: --gpus nobody: this node has no GPU, or no driver that names
--version | 0 | 0.3.0
--hlp | 2 | mnb: --hlp: expected a command first (did you mean '--help'?)
--verison | 2 | mnb: --verison: expected a command first (did you mean '--version'?)
--help-al | 2 | mnb: --help-al: expected a command first (did you mean '--help-all'?)
-V | 2 | mnb: -V: expected a command first (did you mean '--version'?)
-x | 2 | mnb: -x: expected a command first. See mnb --help
tender --init | 2 | mnb tender: --init: expected a command first (did you mean 'init'?)
--repeat 3 jobs quick | 2 | mnb: --repeat: expected a command first. See mnb --help
reprt res | 2 | mnb: unknown command 'reprt' (did you mean 'report'?). See mnb --help
interference | 2 | mnb: interference is a profile. Run it with: mnb jobs interference
baseline standard | 2 | mnb baseline: unknown command 'standard'. Known: list, show, build, check
jbs quick | 2 | mnb: unknown command 'jbs' (did you mean 'jobs'?). See mnb --help
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
