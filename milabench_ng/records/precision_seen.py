"""Which arithmetic was asked for, and which ran."""

from __future__ import annotations

import msgspec

FP32_ERROR = 1e-5
"""Relative error of a matrix product from which on it was not computed in fp32."""
TF32_ERROR = 1e-4
"""The same of a convolution: fp32 by Winograd's algorithm is less exact than a product, TF32 is off by 3e-4."""


class ModeTraits(msgspec.Struct, frozen=True):
    """What a precision mode makes of a model."""

    weights: str
    """The type of its parameters, in `half_master` of all but batch normalisation; autocast leaves them in fp32."""
    layers: str
    """The type of a layer's output."""
    skips: bool = False
    """Its loss scale begins too high and skips the steps whose gradients overflow fp16, even on a healthy device."""


TRAITS = {
    "fp32": ModeTraits("float32", "float32"),
    "tf32": ModeTraits("float32", "float32"),
    "torch_default": ModeTraits("float32", "float32"),
    "amp": ModeTraits("float32", "float16", skips=True),
    "bf16": ModeTraits("float32", "bfloat16"),
    "half": ModeTraits("float16", "float16"),
    "half_master": ModeTraits("float16", "float16", skips=True),
    "half_master_static": ModeTraits("float16", "float16"),
    "bf16_master": ModeTraits("bfloat16", "bfloat16"),
}
"""Of the modes of `bench.precision`."""
SCALED = frozenset(mode for mode, traits in TRAITS.items() if traits.skips)
IN_THE_WEIGHTS = frozenset(mode for mode, traits in TRAITS.items() if traits.weights != "float32")
"""Modes visible only in the parameters' types; the probe's product shows the others."""


def layers_fit(mode: str, dtype: str | None) -> bool:
    """Whether a layer's output has the type of a precision mode; true if either is unknown."""
    return dtype is None or mode not in TRAITS or TRAITS[mode].layers == dtype


class PrecisionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The requested mode, and what really ran."""

    requested: str
    dtypes: dict[str, int]
    """Parameters of the model by dtype."""
    ran_before: str
    """The mode that the weights' types and a matrix product on the device showed before ``start``."""
    ran_after: str | None
    """The same after ``stop``; null if the launch did not get there."""
    matmul_error_before: float
    """Relative error of that product: about 1e-7 in fp32, 3e-4 in TF32 and fp16, 3e-3 in bf16."""
    matmul_error_after: float | None
    layer_dtype: str | None = None
    """The type of the first output of a linear or convolution layer of the model in the first step; null if none ran,
    or if the launch did not get to the end."""

    @property
    def ran(self) -> str:
        """One mode, or both if it changed during the launch."""
        if self.ran_after in (None, self.ran_before):
            return self.ran_before
        return f"{self.ran_before}, then {self.ran_after}"

    @property
    def layers_fit(self) -> bool:
        """Whether the model's own layers computed in the requested mode, as far as is known."""
        return layers_fit(self.requested, self.layer_dtype)
