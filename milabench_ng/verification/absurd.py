"""Foreign files may hold any number: what cannot be computed with is a finding about the file, and no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

ABSURD = (ArithmeticError, LookupError, TypeError, ValueError)
"""What computing with values raises that no run makes: quotients of 0, means of nothing, text as a number."""


def incomputable(error: Exception) -> str:
    """Why nothing follows from a file, by one of the errors in `ABSURD`."""
    told = f"{type(error).__name__}: {short(error)}"
    return f"it has values that nothing can be computed from ({told}); if the file is sound, this is a bug in mnb"


@contextmanager
def computing_from(source: object) -> Iterator[None]:
    """Name ``source`` in an InputError if its values are absurd."""
    try:
        yield
    except ABSURD as error:
        raise InputError(f"{short(source)}: {incomputable(error)}") from error
