"""More pictures than the CPU time of a launch decodes."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.catalogue import data_set_of
from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence

_PICTURES = "imagenet"
"""The set of which all workloads that read it decode a picture for every item."""
_DECODED_PER_MB = 12.0
"""Its pictures per MB that the same CPUs deflate in the host pace: 0.9 to 5.8 were seen, on CPUs of 40 and 65 MB/s."""


def _decoded(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        mnb = record.mnb
        own = evidence.declared.get(mnb.launch.workload)
        if own is None or data_set_of(own.data, mnb.launch.arguments) != _PICTURES:
            continue
        used = [share.usage.cpu_usec for share in mnb.isolation.values() if share.usage and share.usage.cpu_usec]
        paces = [pace.measured for edges in mnb.host_pace.values() for pace in edges.values() if pace.measured]
        if used and paces:
            possible = _DECODED_PER_MB * max(paces) * sum(used) / 1e6
            items = sum(rank.count for rank in mnb.ranks)
            if items > possible:
                yield f"{name}: {items} pictures in {sum(used) / 1e6:.1f} s of CPU time, which decode {possible:.0f}"


DOUBT = Doubt(
    name="decoding-pace",
    title="more pictures than the CPU time of the launch decodes",
    ask="ask which library decodes JPEG there",
    look=_decoded,
)
