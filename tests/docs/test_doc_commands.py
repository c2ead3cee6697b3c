"""Every command in the documents works. A command that is not in the table below fails the test."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pytest
from pages import PAGES, ROOT, commands

from milabench_ng.cli import app, call, show_plan
from tests.one_server import OneServer


class Check(msgspec.Struct, frozen=True):
    """How a command is checked: run whole, run with ``--dry-run``, its arguments parsed, or its script looked at.

    ``elsewhere`` names the test that runs it for real. ``codes``: exit codes that are right.
    """

    way: Literal["run", "dry run", "parse", "script", "elsewhere"]
    why: str = ""
    codes: tuple[int, ...] = (0,)


RUN = Check("run")
WHEELS = Check("elsewhere", "needs the wheels that scripts/wheelhouse collects")
DRY = Check("dry run", "takes minutes, or generates data")
PARSE = Check("parse", "takes minutes, or needs a record")
SHIPPED = Check("script", "writes shipped baselines")
ADMIN = Check("elsewhere", "changes the node")
SLOW = Check("script", "takes seconds, and needs the network or Chromium")
WATCH = Check("parse", "test_watch runs it")
BY_PACKAGE = Check("elsewhere", "test_third_party")

FLEET = Check("elsewhere", "test_cluster_guide runs its like on two nodes of this machine")
RENDERED = Check("elsewhere", "test_cluster_guide runs it")

TABLE: dict[str, Check] = {
    "mkdir -p /etc/systemd/system/user@.service.d": ADMIN,
    'mnb baseline build results --note "rack 7, 2026-11" -o mine.json': PARSE,
    "mnb baseline build results --again results-ssd -o mine.json": PARSE,
    "mnb baseline check rtx8000": Check("run", codes=(1,)),
    "mnb baseline build results -o baselines/mine.json": PARSE,
    "mnb baseline list": RUN,
    "mnb baseline show a100": RUN,
    "mnb baseline show v100": RUN,
    "mnb bids bids.json": PARSE,
    "mnb bids bids.json --html bids.html": PARSE,
    "mnb bids bids.json --layout lambda --format csv": Check("parse", "test_layout_lambda runs it"),
    "mnb bids bids.json --rules tender.json --allowed-signers vendors.txt": PARSE,
    "mnb accept bid.bundle.tar.gz results --rules tender.json --allowed-signers vendors.txt": PARSE,
    "mnb accept bid.bundle.tar.gz results --guarantee 0.97": PARSE,
    "mnb accept bid.bundle.tar.gz results --guarantee 0.97 --explain": PARSE,
    "mnb accept bid.bundle.tar.gz results --guarantee 0.97 --format markdown > acceptance.md": Check(
        "elsewhere", "test_acceptance"
    ),
    "mnb bundle results --sign ~/.ssh/id_ed25519": Check(
        "elsewhere", "test_a_key_of_nobody_who_may_sign_fails_without_rules_too signs, with a key of its own"
    ),
    "mnb report acceptance/nodes/gpu001/screen.tar.gz": Check("elsewhere", "test_fleet_bundles"),
    "mnb fleet run standard --launcher slurm --nodes 16 --jobs '--repeat 3' -o acceptance -- --partition=gpu": FLEET,
    "mnb fleet adopt results --hosts 'gpu[001-016]'": FLEET,
    "mnb fleet render slurm standard --nodes 16 -o acceptance -- --partition=gpu > job.sbatch": RENDERED,
    "mnb fleet render k8s standard --nodes 16 --image registry/mnb:0.3 --claim results | kubectl apply -f -": RENDERED,
    "mnb fleet plan --nodes 512 --slow 5% --risk 1%": RUN,
    "mnb doctor --format json": Check("run", codes=(0, 1)),
    "mnb doctor": Check("run", codes=(0, 1)),
    "mnb doctor --rules standard": PARSE,
    "mnb list standard": RUN,
    "mnb report results --compare baselines/v100.json --price 15000": RUN,
    "mnb schema profile": RUN,
    "mnb schema profile > profile.schema.json": Check("elsewhere", "the same without a file is run here"),
    "mnb watch acceptance": Check("elsewhere", "test_watching"),
    "mnb watch results": WATCH,
    "mnb watch results --speed 60": WATCH,
    "mnb watch results --html /var/www/html/mnb.html": WATCH,
    "mnb watch results --prometheus /var/lib/prometheus/node-exporter/mnb.prom": WATCH,
    "mnb jobs --resume results": Check("parse", "test_both_commands_go_on_with_the_same_request compares it"),
    "mnb resume results --rules standard": Check("parse", "test_rules_of_a_run runs it"),
    "mnb resume results": Check("parse", "test_resume_runs_what_has_no_valid_record_and_no_more runs it"),
    "mnb jobs profiles/quick.json --name vae --name convnet -- --batch-size 64": DRY,
    "mnb jobs profiles/standard.json --dry-run": RUN,
    "mnb jobs profiles/standard.json --repeat 10 -o results": PARSE,
    "mnb jobs profiles/standard.json --repeat 5 --sessions 3 --session-gap 6h -o results": PARSE,
    "mnb --install-completion": Check("elsewhere", "changes the user's shell"),
    "mnb jobs cv --name cv_train_resnet50_amp --name cv_infer_vit_b_16_half -o results-cv-two": PARSE,
    "mnb jobs cv --name cv_train_resnet50_amp -o results-cv-1024 -- --batch-size 1024": PARSE,
    "mnb jobs cv --ram-total 120GiB": PARSE,
    "mnb jobs interference --repeat 5 -o results-neighbours": PARSE,
    "mnb jobs interference --name 'toy_lstm_*' --repeat 5 -o results-toy_lstm": PARSE,
    "mnb jobs interference --name 'loader_*' --repeat 5 -o results-loader": PARSE,
    "mnb report results-toy_lstm results-loader --layout interference": PARSE,
    "mnb jobs interference-quick --repeat 15 --target-ci 2% --budget 2h -o results-narrow": PARSE,
    "mnb jobs standard --repeat 20 --target-ci 2% --budget 3h -o results-narrow": PARSE,
    "mnb jobs interference --name loader_alone --name loader_beside_disk_write --io-write 200MiB/s": PARSE,
    "mnb jobs interference-fence --repeat 5 -o results-fence": PARSE,
    "mnb jobs interference-fence --repeat 5 --isolation none -o results-unfenced": PARSE,
    "mnb report results-fence --compare results-unfenced": PARSE,
    "mnb jobs interference-pressure --repeat 5 -o results-pressure": PARSE,
    "mnb report results-pressure --layout interference": PARSE,
    "mnb jobs interference-control --repeat 5 -o results-control": PARSE,
    "mnb jobs interference-control --slots-per-device 2 --repeat 2 --ram-total 120GiB": PARSE,
    "mnb report results-control --layout interference": PARSE,
    "mnb jobs standard --name wlm --name convnet -o results-1": PARSE,
    "mnb jobs standard --name wlm --name convnet --slots-per-device 2 -o results-2": PARSE,
    "mnb jobs standard --name wlm --name convnet --slots-per-device 4": PARSE,
    "mnb jobs standard --name wlm --name convnet --slots-per-device 4 -o results-4": PARSE,
    "mnb report results-1 --compare results-2 --compare results-4": PARSE,
    "mnb jobs interference --gpus 0,1 --repeat 5 -o results-mig": PARSE,
    "mnb jobs mixed --repeat 3 -o results-mixed": PARSE,
    "mnb report results-neighbours --layout interference": PARSE,
    "mnb report results-neighbours --layout interference --format markdown": PARSE,
    "mnb report results-neighbours --layout interference --format csv": PARSE,
    "mnb jobs cv -o results-cv": PARSE,
    "mnb list cv -v": RUN,
    "mnb report results-cv --layout cv --format csv": PARSE,
    "mnb jobs quick": DRY,
    "mnb jobs quick --repeat 2 --sessions 2": DRY,
    "mnb jobs standard": DRY,
    "mnb jobs unet3d --repeat 3 -o results": PARSE,
    "mnb report results --layout unet3d --format csv": Check("elsewhere", "test_layouts"),
    "mnb report results --compare unet3d-a100 unet3d-v100": RUN,
    "mnb report --compare base.json v100 results": RUN,
    "mnb jobs lambda --repeat 3 -o results-lambda": PARSE,
    "mnb jobs lambda --name gnmt_amp --name bert_large_squad_amp -o results-lambda": PARSE,
    "mnb jobs lambda --name ncf_fp32 --window 1 --data-scale 0.01 -- --batch-size 4096": PARSE,
    "mnb report results-lambda": PARSE,
    "mnb jobs modern --repeat 2": PARSE,
    "mnb jobs modern --repeat 2 --order file --ram-total 120GiB": PARSE,
    "mnb jobs lambda --order file --ram-total 120GiB": PARSE,
    "mnb jobs modern2 --repeat 3 --dry-run -d /scratch/mnb": PARSE,
    "mnb jobs modern2 --repeat 1 --ram-total 120GiB": PARSE,
    "mnb jobs modern2 --repeat 2 --name llm_fsdp_3b --name moe_ep_2l --name llm_tp_decode_8b --ram-total 240GiB": PARSE,
    "mnb jobs parallel --repeat 1 --ram-total 240GiB": PARSE,
    "mnb jobs modern2 --repeat 2 --budget 1130s --ram-total 240GiB": PARSE,
    "scripts/bench-field --pairs 3 --seconds 3 --warm 1": Check("script", "takes minutes"),
    "mnb jobs modern2 --name llm_lora --name llm_decode -o results-language": PARSE,
    "mnb report results-modern2": PARSE,
    "mnb prepare modern2 -d /scratch/mnb": PARSE,
    "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING NCCL_DEBUG_FILE=/scratch/nccl.%p": Check(
        "elsewhere", "sets variables of NCCL"
    ),
    "mnb jobs modern2 --name all_reduce -o results-tuning": PARSE,
    "mnb jobs procurement --repeat 5 --sessions 3 --session-gap 6h -o results": PARSE,
    "uv run scripts/check-memory-classes -d /scratch/mnb": Check("script", "takes minutes, and needs a GPU"),
    "mnb jobs modern-lite --dry-run": RUN,
    "mnb jobs modern2 --repeat 3 -d /scratch/mnb -o results-modern2": PARSE,
    "mnb report results-modern2 --full": PARSE,
    "mnb jobs modern2 --name llm_fsdp_3b --name moe_ep_2l --name llm_tp_decode_8b --repeat 3 -d /scratch/mnb "
    "-o results-smaller": PARSE,
    "mnb baseline build results-modern2 --again results-smaller -o my-node.json": PARSE,
    "mnb report results-modern2 --weights my-weights.json": PARSE,
    "mnb report results-modern --compare modern-h200": PARSE,
    "mnb jobs parallel --repeat 3 -d /scratch/mnb -o results-parallel": PARSE,
    "mnb report results-parallel --html parallel.html": PARSE,
    "mnb jobs frontier --repeat 3 -o results-frontier": PARSE,
    "mnb jobs serve --repeat 3 -o results-serve": PARSE,
    "mnb report results-frontier --full": PARSE,
    "mnb report results-serve --html serve.html": PARSE,
    "mnb jobs serve --name 'serve_*' -o results-interactive -- --first-limit-s 0.5 --next-limit-s 0.03": PARSE,
    "uv run scripts/check-memory-classes --memory 24GiB --memory 40GiB -d /scratch/mnb": Check(
        "script", "takes minutes, and needs a GPU"
    ),
    "uv run scripts/simulate-decisions --only days": Check("script", "takes half a minute"),
    "uv run scripts/simulate-decisions --only slow-devices": Check("script", "takes two minutes"),
    "scripts/simulate-decisions --only fleet": Check("script", "takes minutes"),
    "scripts/simulate-decisions --only network": Check("script", "takes a minute"),
    "uv run scripts/simulate-decisions --only slow-repeats": Check("script", "takes half a minute"),
    "uv run scripts/weigh my-node.json -o my-weights.json": Check("script", "needs a baseline"),
    "mnb jobs modern2 --name llm_lora --window 1 --data-scale 0.01 -- --layers 2 --width 64 --heads 4 --kv-heads 2 "
    "--inner 128 --vocabulary 512 --length 64": PARSE,
    "mnb report results-modern2 --compare modern2-h200": PARSE,
    "mnb report results-modern2 --compare modern2-h200-x1": PARSE,
    "mnb jobs io --order file --data-scale 0.0325 --ram-total 120GiB -- --max-count 0": PARSE,
    "mnb jobs io --repeat 3 -d /scratch/data -o results-io": PARSE,
    "mnb jobs io --data-scale 0.08 -d /scratch/data -o results-io": PARSE,
    "mnb jobs io --name original_unlimited --name ring_buffer_unlimited --data-scale 0.0325 "
    "-o results-io -- --max-count 0": PARSE,
    "mnb report results-io --layout io --format markdown": Check("elsewhere", "test_layout_io"),
    "mnb report results-io --html report.html": PARSE,
    "mnb report results-io --compare io-rtx4090": PARSE,
    "mnb report results-lambda --layout lambda --format csv --compare lambda-a100 --price 30000": Check(
        "elsewhere", "test_layout_lambda"
    ),
    "mnb report results-lambda --compare lambda-h200-measured": PARSE,
    "mnb report results-lambda --compare lambda-h100": PARSE,
    "mnb jobs standard --name convnet_fp16 --name convnet --name fast_style --name translator --data-scale 0.1 "
    "--ram-total 250GiB": PARSE,
    "mnb jobs standard --repeat 3 --ram-total 480GiB": PARSE,
    "mnb jobs unet3d --ram-total 250GiB": PARSE,
    "mnb jobs quick --name toy_reg --name loader --repeat 2 --window 1": DRY,
    "mnb jobs cv --name cv_train_mobilenet_v3_large_fp32 --window 2 -- --width 64 --height 64 --batch-size 2": (PARSE),
    "mnb jobs unet3d --name unet3d_train_fp32 --window 1 --data-scale 0.01 -- --depth 16 --height 16 --width 16": PARSE,
    "mnb list": RUN,
    "mnb list -v": PARSE,
    "mnb list profiles/standard.json -v": RUN,
    "mnb prepare profiles/standard.json --data-scale 0.1": PARSE,
    "mnb prepare standard": PARSE,
    "mnb prepare profiles/standard.json -d /scratch/mnb": PARSE,
    "mnb prepare standard -d /scratch/mnb": PARSE,
    "mnb --help": RUN,
    "mnb report baselines/h200.json --compare v100 --price 15000": RUN,
    "mnb report results": RUN,
    "mnb report results --full": RUN,
    "mnb report results --compare base.json -o report.json": RUN,
    "mnb report results --compare base.json v100 --margin 3% --per-gpu": RUN,
    "mnb report results --compare v100 --price 200000": RUN,
    "mnb report results --price 200000 --tariff 0.20": RUN,
    "mnb report results --compare v100 --price 200000 --html report.html": RUN,
    "mnb report results-acme --weights tests/docs/third_party/acme-weights.json": BY_PACKAGE,
    "mnb verify results-acme": BY_PACKAGE,
    "mnb verify baselines/bundles/standard-rest-2xH200-20261122.tar.gz": RUN,
    "mnb rerun results/standard.vae.J0.0.20260106-160000-123456.json": PARSE,
    "mnb run convnet --data-scale 0.02 -- --image-size 64 --precision bf16": PARSE,
    "mnb resume FOLDER --spool FILE": PARSE,
    "mnb resume FOLDER --spool FOLDER": PARSE,
    "mnb run vae -o vae.json -- --batch-size 64": PARSE,
    "mnb schema record": RUN,
    "mnb jobs stress": DRY,
    "mnb jobs stress --dry-run": RUN,
    "mnb jobs stress --for 30min -o results-stress": PARSE,
    "mnb jobs stress --name pulse --for 10min -- --pulse-hz 10": PARSE,
    "mnb jobs stress --for 110s": PARSE,
    "mnb jobs serve": PARSE,
    "mnb jobs frontier": PARSE,
    "mnb report results-stress": PARSE,
    "mnb summary results-stress -o known.json": PARSE,
    "mnb report results-stress --compare known.json": PARSE,
    "uv run scripts/bench-verify": Check("script", "takes minutes"),
    "mnb check --store": Check("parse", "takes two minutes; test_check runs it"),
    "mnb check --baseline golden.json": PARSE,
    "mnb tender demo demo-tender": RUN,
    "mnb tender init tender-2026-17 --vendor acme=300000 --vendor umbra=231000 --key acme=acme.pub "
    "--key umbra=umbra.pub": Check("parse", "test_new_tender runs it"),
    "mnb schema rules": RUN,
    "mnb summary results -o base.json": RUN,
    "mnb report results --compare base.json --price 15000": RUN,
    "mnb report results --per-gpu": RUN,
    "mnb jobs profiles/quick.json --repeat 3 --nonce tender-2026-17 -o results": PARSE,
    "mnb jobs standard --repeat 5 --sessions 3 --session-gap 6h": DRY,
    "mnb bundle results": RUN,
    "mnb verify results.bundle.tar.gz --profile profiles/quick.json --repeat 3 --nonce tender-2026-17": Check(
        "run", "the folder here is of another run", codes=(1,)
    ),
    "mnb verify results.bundle.tar.gz --profile profiles/quick.json --repeat 10 --nonce another": Check(
        "run", codes=(1,)
    ),
    "scripts/docs": SLOW,
    "mnb verify results --profile profiles/standard.json --require full --repeat 10": Check("run", codes=(1,)),
    "mnb verify results.bundle.tar.gz --profile profiles/standard.json --require full --repeat 10": Check(
        "run", codes=(1,)
    ),
    "mnb stamp request results": RUN,
    "mnb stamp add results reply.tsr": PARSE,
    "mnb verify results.bundle.tar.gz --rules procurement --allowed-signers vendors.txt": PARSE,
    "mnb verify results.bundle.tar.gz --rules tender.json --allowed-signers vendors.txt": PARSE,
    "PYTHONPATH=site mnb jobs tests/docs/third_party/acme.json -o results-acme": BY_PACKAGE,
    "PYTHONPATH=site mnb list": BY_PACKAGE,
    "PYTHONPATH=site mnb run probe --data-scale 0.1 -o probe.json": BY_PACKAGE,
    "PYTHONPATH=site python3 -m milabench_ng jobs profiles/quick.json": DRY,
    r"printf '[Service]\nDelegate=yes\n' > /etc/systemd/system/user@.service.d/mnb.conf": ADMIN,
    "python -m milabench_ng": Check("elsewhere", "test_the_package_runs_as_a_module"),
    "python3 -m pip install --no-index --no-deps --target site wheelhouse/*.whl": Check(
        "elsewhere", "needs the wheels"
    ),
    'pip install ".[language]"': Check("elsewhere", "needs the network"),
    'pip install ".[volumes]"': Check("elsewhere", "needs the network"),
    'pip install ".[hyperspectral]"': Check("elsewhere", "needs the network"),
    "scripts/baselines-io": Check("script", "needs the table that it reads"),
    "scripts/loading-plots": Check("script", "test_layout_io runs it"),
    "uv run scripts/loading-plots results-io plots": Check("script", "test_layout_io runs it"),
    "scripts/baselines-lambda": Check("script", "needs the table that it reads"),
    "scripts/baselines-unet3d": Check("script", "needs the table that it reads"),
    "scripts/baselines-2020": Check("script", "writes the shipped baselines"),
    "scripts/bench-fence": Check("script", "takes half a minute, and wants a quiet node"),
    'pip install ".[segmentation]"': Check("elsewhere", "needs the network"),
    "uv run scripts/bench-field": Check("script", "takes minutes"),
    "uv run scripts/bench-field --name llm --name moe --name dit --name vit --name grpo": Check(
        "script", "takes minutes, and needs a GPU"
    ),
    "uv run scripts/bench-field --device cpu --small --name mobilenet --pairs 1": Check(
        "script", "takes half a minute"
    ),
    "scripts/bench-html": Check("script", "takes half a minute, and needs Chromium"),
    "scripts/bench-launch": Check("script", "takes minutes"),
    "scripts/bench-energy": Check("script", "needs a GPU"),
    "scripts/bench-meter": Check("script", "takes minutes"),
    "scripts/bench-fleet 1000": Check("script", "takes minutes"),
    "scripts/bench-report 10000": Check("script", "takes a minute"),
    "scripts/bench-workloads": Check("script", "takes minutes"),
    "scripts/bench-workloads standard --warm 1 --seconds 4 --pairs 3": Check("script", "takes minutes"),
    "scripts/check-faults-gpu": Check("script", "takes minutes, and wants GPUs"),
    "scripts/check-faults-gpu --ram-total 250GiB": Check("script", "takes minutes, and wants GPUs"),
    "scripts/bench-footprint": Check("script", "takes a minute"),
    "scripts/check-feeding": Check("script"),
    "scripts/check-feeding --data-scale 0.1": Check("script", "needs GPUs"),
    "scripts/check-fence-gpu": Check("script", "test_the_fence_holds_with_gpus runs it"),
    "scripts/check-fence-gpu --ram-total 250GiB": Check("script", "needs GPUs"),
    "scripts/check-memory-classes": Check("script", "takes minutes, and needs a GPU"),
    "scripts/weigh": Check("script", "needs a baseline"),
    "scripts/check-full-disk": Check("script", "takes minutes"),
    "scripts/check-resume": Check("script", "takes minutes"),
    "scripts/fuzz": Check("script", "takes minutes"),
    "scripts/known-rates": Check("script", "needs the tables that it reads"),
    "scripts/known-twins": Check("script", "needs the data roots that it reads"),
    "scripts/mnb": Check("script", "needs the network"),
    "scripts/mnb jobs profiles/quick.json": DRY,
    "scripts/red-team": Check("script", "takes minutes"),
    "scripts/release": Check("script", "builds and installs a wheel, with torch"),
    "scripts/release --rehearse": Check("script", "builds and installs a wheel, with torch"),
    "scripts/screenshots --docs": SLOW,
    "scripts/screenshots FOLDER OUT": Check("script", "needs Chromium and a result folder"),
    "scripts/simulate-decisions": Check("script", "takes minutes"),
    "scripts/estimate-baseline": SHIPPED,
    "scripts/fault-matrix": Check("script", "takes a quarter of an hour"),
    "scripts/fault-matrix --batches 1000": Check("script", "takes an hour"),
    "scripts/fault-matrix --soak 30": Check("script", "takes half an hour"),
    "scripts/test": Check("script", "it is what runs this test"),
    "scripts/test --quick": Check("script", "it runs most of these tests"),
    "scripts/test --quick -k score": Check("script", "it runs some of these tests"),
    "scripts/test --slurm": Check("script", "starts a Slurm cluster"),
    "scripts/test --vm": Check("script", "boots virtual machines"),
    "scripts/traces": Check("script", "test_traces runs it"),
    "scripts/wheelhouse 3.12 manylinux_2_28_x86_64": Check("script", "needs the network"),
    "systemctl daemon-reload": ADMIN,
    "systemctl restart user@1000": ADMIN,
    "systemd-run --user --scope -p Delegate=yes -- true": Check("elsewhere", "needs a systemd user session"),
    "uv pip install --no-deps --target site tests/docs/third_party": BY_PACKAGE,
    "uv lock": Check("elsewhere", "needs the network"),
    "uv run scripts/baselines-2020": SHIPPED,
    "uv run scripts/bench-launch": Check("script", "takes minutes"),
    "uv run scripts/estimate-baseline h200 --device A100-SXM4-80GB > baselines/a100.json": SHIPPED,
    "uv run scripts/builtin": Check("script", "writes what test_builtin compares"),
    "uv run scripts/bench-energy": Check("script", "needs a GPU"),
    "uv run scripts/bench-meter": Check("script", "takes minutes"),
    "uv run scripts/fuzz --runs 11000": Check("script", "takes minutes"),
    "uv run mnb": Check("elsewhere", "scripts/mnb does it"),
    "uv tool run pre-commit install": Check("elsewhere", "needs the network, and changes the checkout"),
    "mnb bundle results --sign KEY": PARSE,
    "mnb bundle results --sign tender-key": PARSE,
    "mnb jobs PROFILE --dry-run": PARSE,
    "mnb jobs interference --repeat 5": PARSE,
    "mnb jobs profiles/quick.json --repeat 5 --nonce tender-2026-17 -o results": PARSE,
    "mnb jobs standard --repeat 5": PARSE,
    "mnb jobs standard --repeat 5 -o results": PARSE,
    "mnb list PROFILE": PARSE,
    "mnb list PROFILE -v": PARSE,
    "mnb report A --compare B": PARSE,
    "mnb report FOLDER --compare OTHER": PARSE,
    "mnb report baselines/bundles/interference-loader-2xH200-20261125.tar.gz --layout interference": RUN,
    "mnb report baselines/bundles/interference-toy_lstm-2xH200-20261125.tar.gz --layout interference": RUN,
    "mnb report baselines/h200.json --compare v100 --html report.html": PARSE,
    "mnb report baselines/modern-h200.json": RUN,
    "mnb resume FOLDER": PARSE,
    "mnb verify baselines/bundles/modern-1xH200-20261124.tar.gz": RUN,
    "mnb verify results.bundle.tar.gz --profile profiles/quick.json --repeat 5 --nonce tender-2026-17 "
    "--allowed-signers signers.txt": PARSE,
    "pip install .": Check("elsewhere", "needs the network"),
    "pip install /opt/rocm/share/amd_smi": Check("elsewhere", "needs ROCm"),
    "scripts/mnb doctor": Check("script", "needs the network"),
    "mnb report baselines/h200.json --compare a100 --price 15000": RUN,
    "mnb report baselines/bundles/standard-rest-2xH200-20261122.tar.gz --per-gpu": RUN,
    "mnb report results.bundle.tar.gz --rules standard --nonce tender-2026-17 --compare v100 "
    "--allowed-signers vendors.txt": PARSE,
    "mnb verify baselines/bundles/standard-rest-2xH200-20261122.tar.gz --rules standard": Check("run", codes=(1,)),
    "mnb verify results.bundle.tar.gz --rules standard --allowed-signers vendors.txt": PARSE,
    "mnb verify results.bundle.tar.gz --rules standard --nonce tender-2026-17 --allowed-signers vendors.txt": PARSE,
    "mnb tender init tender-2026-17 --vendor acme=300000 --key acme=acme.pub": PARSE,
}

FOLLOWED = ("submit-a-bid.md", "evaluate-a-tender.md", "accept-a-cluster.md")
"""test_tender_guides and test_cluster_guide run every command of these pages."""
FOUND = sorted({line for page in PAGES if page.name not in FOLLOWED for line in commands(page)})
NAMED = [line for line in FOUND if re.fullmatch(r"mnb( baseline| tender)? [a-z]+|mnb fleet( [a-z0-9]+){1,2}", line)]
"""Only the name of a subcommand, such as `mnb jobs` in a sentence."""


def tokens(line: str) -> list[str]:
    """The arguments of a command of ours."""
    words = [word for word in shlex.split(line) if not word.startswith("PYTHONPATH=")]
    return words[3:] if words[0].startswith("python") else words[1:]


class Done(NamedTuple):
    """What a command left: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str


Mnb = Callable[[Sequence[str]], Done]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the documents assume it: the project's files, a result folder and a baseline."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("profiles", "baselines", "weights", "rules", "tests"):
        (folder / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        maker = ROOT / "tests" / "report" / "make_records.py"
        patch.syspath_prepend(maker.parent)
        patch.setattr(sys, "argv", [str(maker), str(folder / "results"), "--records", "40", "--slices", "40"])
        runpy.run_path(str(maker), run_name="__main__")
        patch.chdir(folder)
        assert call(["summary", "results", "-o", "base.json"]) == 0
        assert call(["bundle", "results"]) == 0
    (folder / "bid.bundle.tar.gz").symlink_to("results.bundle.tar.gz")
    return folder


@pytest.fixture
def mnb(place: Path, one_server: OneServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Mnb:
    """Run ``mnb`` there, in this process: starting one for each command takes longer than most commands."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(show_plan, "require_space", lambda *_: None)  # for the datasets of all profiles

    def run(arguments: Sequence[str]) -> Done:
        capfd.readouterr()
        with one_server.lent():
            return Done(call(arguments), *capfd.readouterr())

    return run


def test_the_table_has_every_command_and_no_other() -> None:
    listed = set(FOUND) - (set(NAMED) - set(TABLE))
    assert sorted(TABLE) == sorted(listed)


@pytest.mark.parametrize("line", NAMED)
def test_subcommands_that_are_named_exist(line: str) -> None:
    first, *rest = tokens(line)
    assert first in app
    assert not rest or rest[0] in app[first]


@pytest.mark.parametrize("line", [line for line, check in TABLE.items() if check.way == "run"])
def test_runs(line: str, mnb: Mnb) -> None:
    written = "-o" in tokens(line) or tokens(line)[0] == "bundle"
    done = mnb([*tokens(line), "--force"] if written else tokens(line))  # the folder has what the pages make
    assert done.code in TABLE[line].codes, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout or "-o" in tokens(line)


@pytest.mark.parametrize("line", [line for line, check in TABLE.items() if check.way == "dry run"])
def test_would_run(line: str, mnb: Mnb) -> None:
    own, dashes, others = " ".join(tokens(line)).partition(" -- ")
    done = mnb([*own.split(), "--dry-run", *f"{dashes}{others}".split()])
    assert done.code == 0, done.stderr
    assert "launch groups, in this order" in done.stdout


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "milabench_ng"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: mnb" in done.stdout


@pytest.mark.parametrize("line", [line for line, check in TABLE.items() if check.way == "parse"])
def test_is_understood(line: str) -> None:
    _, bound, _ = app.parse_args(tokens(line), print_error=False, exit_on_error=False)  # raises for what is not known
    assert bound.args or bound.kwargs


@pytest.mark.parametrize("line", [line for line, check in TABLE.items() if check.way == "script"])
def test_script_is_there(line: str) -> None:
    script = ROOT / line.removeprefix("uv run ").split()[0]
    assert os.access(script, os.X_OK)
    first = script.read_text().partition("\n")[0]
    if first.endswith("sh"):
        subprocess.run([*first.removeprefix("#!").split(), "-n", str(script)], check=True)
    else:
        compile(script.read_text(), script.name, "exec")
