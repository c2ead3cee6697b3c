"""Which arithmetic was asked for, and which ran."""

from __future__ import annotations

import msgspec

FP32_ERROR = 1e-5
"""Relative error of a matrix product from which on it was not computed in fp32."""


LAYER_DTYPES = {
    "fp32": "float32",
    "tf32": "float32",
    "amp": "float16",
    "bf16": "bfloat16",
    "half": "float16",
    "half_master": "float16",
    "half_master_static": "float16",
    "bf16_master": "bfloat16",
}
"""The type of a layer's output in each precision mode."""


def layers_fit(mode: str, dtype: str | None) -> bool:
    """Whether a layer's output has the type of a precision mode; true if either is unknown."""
    return dtype is None or LAYER_DTYPES.get(mode, dtype) == dtype


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
