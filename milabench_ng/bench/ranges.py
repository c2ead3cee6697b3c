"""Common ranges of options, as annotations: values outside are refused before anything runs."""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
"""How many of something: a batch, a width."""
Rate = Annotated[float, Meta(gt=0)]
"""A learning rate, a length, a temperature."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
"""A share or a probability."""
