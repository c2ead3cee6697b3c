"""What the built-in workloads declare, as `mnb verify` knows it."""

from __future__ import annotations

from milabench_ng.model.builtin import FILE, encode_builtin


def test_the_file_is_what_the_workloads_declare_today() -> None:
    from milabench_ng.worker.discovery import OWN, builtin_workloads  # imports torch

    today = encode_builtin({name: one.describe(name, OWN) for name, one in builtin_workloads().items()})
    assert FILE.read_bytes() == today, "run scripts/builtin"
