"""Which profile a session ran: the rates of another one than the fleet's say nothing of a node. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.model.plain import short


class RanProfile(msgspec.Struct, frozen=True):
    """A profile, by the suite that it was run as and the hash of its text."""

    suite: str
    sha256: tuple[str, ...]
    """Of each run in the folder; empty if not recorded."""

    @staticmethod
    def asked(manifest: FleetManifest) -> RanProfile:
        """What all nodes of a fleet were to run."""
        return RanProfile(manifest.suite, (manifest.profile.sha256,))

    @staticmethod
    def of(summary: Summary) -> RanProfile:
        """What a session ran."""
        return RanProfile(summary.suite, summary.profile_sha256)

    @property
    def words(self) -> str:
        """What it is called in messages."""
        return short(f"{self.suite} ({', '.join(one[:12] for one in self.sha256) or 'not recorded'})")

    def unlike(self, asked: RanProfile) -> str:
        """Why a session that ran it cannot be compared with a fleet that was ``asked`` for another; empty if it can."""
        if not self.sha256 or self == asked:
            return ""
        return f"it ran the profile {self.words}, and its fleet {asked.words}"
