"""Rates in other units, as formulas; for language models over the options that all of them have."""

from __future__ import annotations

from milabench_ng.bench import Derived

BLOCKS = "layers * width * (2 * width + 2 * width * kv_heads / heads + 3 * inner)"
HEAD = "width * vocabulary"
WEIGHTS = f"({BLOCKS} + {HEAD})"
"""Weights that a token is multiplied with."""


def flop_rates(flop: str, all_attention: str | None = None) -> tuple[Derived, ...]:
    """TFLOP/s, and the share of the device's peak in percent: by ``flop`` of an item, where half of causal attention
    counts, and by ``all_attention``, where all of it does; None without causal attention."""
    rates = (Derived("TFLOP/s", f"rate * {flop} / 1e12"), Derived("MFU %", f"rate * {flop} / 1e10 / peak_tflops"))
    full = "MFU % (full attention)"
    return (*rates, Derived(full, f"rate * {all_attention} / 1e10 / peak_tflops")) if all_attention else rates
