"""Common ranges of options, as annotations: values outside are refused before anything runs."""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
"""How many of something: a batch, a width."""
WholeNumber = Annotated[int, Meta(ge=0)]
"""How many of something that may be missing: a border, a head."""
Rate = Annotated[float, Meta(gt=0)]
"""A learning rate, a length, a temperature."""
FromZero = Annotated[float, Meta(ge=0)]
"""A rate or a length that may be 0."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
"""A share or a probability."""
