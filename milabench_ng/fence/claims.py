"""A run's claim on CPUs and GPUs: no two runs measure on the same ones without a word.

A name in the abstract socket namespace (unix(7)) belongs to one process at a time, and the kernel frees it with that
process, however it ends. So a claim needs no file, no rights and no cleaning, works in every tier, and taking it is
looking for others and making it known in one step. It reaches as far as the network namespace.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable
from typing import Self

from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.model.errors import InUseError
from milabench_ng.node.cgroup_files import format_ids

_HELD = re.compile(r"@mnb:(\S+?)(\+\d+)?$", re.MULTILINE)
_CPU = re.compile(r"cpu(\d+)")
_RUN = re.compile(r"@mnb-run:(\d+):(\S+)$", re.MULTILINE)


def resources(cpus: Iterable[int], uuids: Iterable[str | None]) -> tuple[str, ...]:
    """What a run on these CPUs and GPUs claims."""
    return (*(f"cpu{cpu}" for cpu in sorted(set(cpus))), *sorted({uuid for uuid in uuids if uuid}))


class Claim:
    """A claim on resources, held until it is closed or its process ends."""

    def __init__(self, wanted: Iterable[str], run_id: str, allow_concurrent: bool = False) -> None:
        """Claim what is ``wanted``. What another run holds is shared with it if ``allow_concurrent``.

        Raises InUseError, naming the other runs, if it is not.
        """
        self._wanted = frozenset(wanted)
        self._own: dict[str, socket.socket] = {}
        for name in sorted(self._wanted):  # in one order for all: of runs that meet, one gets everything
            if self._bind(f"mnb:{name}"):
                continue
            if not allow_concurrent:
                break
            self._bind(f"mnb:{name}+{os.getpid()}")
        shared = self.contested()
        if shared and not allow_concurrent:
            self.close()
            raise InUseError(_refusal(shared))
        self._bind(f"mnb-run:{os.getpid()}:{run_id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def contested(self) -> tuple[str, ...]:
        """What other runs claim of it now."""
        found = _HELD.finditer(host_text("net/unix"))
        others = {match[1] for match in found if match[0].removeprefix("@") not in self._own}
        return tuple(sorted(self._wanted & others))

    def close(self) -> None:
        """Give it up."""
        for held in self._own.values():
            held.close()
        self._own.clear()

    def _bind(self, name: str) -> bool:
        """Take a name; False if another process has it."""
        taking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            taking.bind(f"\0{name}")
        except OSError as error:
            taking.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        self._own[name] = taking
        return True


def _refusal(shared: tuple[str, ...]) -> str:
    """Why a run may not begin beside another, and what to do."""
    runs = [f"{match[2]} (pid {match[1]})" for match in _RUN.finditer(host_text("net/unix"))]
    one, several = f"run {''.join(runs[:1])} uses", f"runs {', '.join(runs)} use"
    whose = several if len(runs) > 1 else one if runs else "another run that is starting uses"
    cpus = [int(name.removeprefix("cpu")) for name in shared if _CPU.fullmatch(name)]
    gpus = [name for name in shared if not _CPU.fullmatch(name)]
    named = ", ".join((*((f"CPUs {format_ids(cpus)}",) if cpus else ()), *gpus[:4]))
    more = f" and {len(gpus) - 4} more" if len(gpus) > 4 else ""
    wait = f"Wait for {'them' if len(runs) > 1 else 'it'} to end"
    return (
        f"isolation: {whose} {named}{more}. {wait}. A run begun with --allow-concurrent need not wait (results get a "
        "warning)."
    )
