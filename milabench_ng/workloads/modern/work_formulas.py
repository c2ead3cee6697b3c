"""Rates in other units, as formulas; for language models over the options that all of them have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from milabench_ng.bench import Derived, FirstLoss
from milabench_ng.model.catalogue import Scalar

BF16: dict[str, Scalar] = {"precision": "bf16_master"}
"""The option with which the weights are in bf16, two bytes each, and the device works in it."""
_ATTENDING = "2*width*(width+width*kv_heads/heads)"
HEAD = "width*vocabulary"
"""Weights of the head; those of the embedding are not multiplied."""
BLOCKS = f"layers*({_ATTENDING}+3*width*inner)"
WEIGHTS = f"({BLOCKS}+{HEAD})"
"""Weights that a token is multiplied with."""
ROUTED_WEIGHTS = f"(layers*({_ATTENDING}+width*(experts+3*active*inner))+{HEAD})"
"""The same with routed experts."""
ADAPTERS = "layers*rank*(9*width+2*width*kv_heads/heads+3*inner)"
"""Weights of adapters on the seven linear layers of each block."""
STEP_FLOP = f"(2 * {BLOCKS} * fed + 2 * {HEAD} * said + 4 * layers * width * attended)"
"""Of a step, by what it notes: tokens that the blocks see, those of which the head does, and pairs that attend."""
FIRST_LOSS = FirstLoss("log(vocabulary)+width*0.0002")
"""Logits of a normalised state are normal, with a variance of the width times 0.02^2."""
CAUSAL = "layers*width*length"
"""Six times this are the operations per token of causal attention, forward and backward, of which half counts."""


def flop_rates(
    flop: str, all_attention: str | None = None, only: Mapping[str, Scalar] = MappingProxyType({})
) -> tuple[Derived, ...]:
    """TFLOP/s, and the share of the device's bf16 peak in percent: by ``flop`` of an item, where half of causal
    attention counts, and by ``all_attention``, where all of it does; None without causal attention.

    The shares hold in the precision of the family. ``only``: with which other options they do.
    """
    in_bf16 = BF16 | {**only}
    rates = (Derived("TFLOP/s", f"rate*{flop}/1e12"), Derived("MFU %", f"rate*{flop}/1e10/peak_tflops", in_bf16))
    full = "MFU % (full attention)"
    return (*rates, Derived(full, f"rate*{all_attention}/1e10/peak_tflops", in_bf16)) if all_attention else rates


def narrow_rates(flop: str, *numbers: str) -> tuple[Derived, ...]:
    """The share of the device's peak in the narrow ``numbers`` of the option of that name, by ``flop`` of an item."""
    peaks = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
    return tuple(
        Derived(f"MFU % (of the {peaks[each]} peak)", f"rate*{flop}/1e10/peak_{peaks[each]}_tflops", {"numbers": each})
        for each in numbers
    )
