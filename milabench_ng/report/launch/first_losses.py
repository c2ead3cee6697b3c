"""The loss of a launch's first step beside the one that theory has for it: a reference where no trace applies. Pure.

How the weights are made, with the options, says it: whatever the device, the precision, the data and the software.
"""

from __future__ import annotations

from milabench_ng.catalogue import FirstLoss
from milabench_ng.errors import InputError
from milabench_ng.report.launch.traces import Compared, TraceBand, Traced, deviations, left_out


def compare_first_loss(seen: Traced, first_loss: FirstLoss) -> Compared:
    """Compare a launch with ``first_loss``, which its workload declares."""
    try:
        value = first_loss.of(seen.arguments)
    except InputError as error:  # a record without an option that its workload has
        return Compared(lacking=f"these options ({error})")
    bands = {"1": TraceBand(value, first_loss.within * abs(value))}
    found = [
        *deviations("loss outside the reference", seen, bands, seen.losses),
        *left_out("loss", seen, bands, seen.losses),
    ]
    return Compared(deviations=tuple(dict.fromkeys(found)), strength="first loss only")
