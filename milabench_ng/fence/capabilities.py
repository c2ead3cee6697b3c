"""The result of a probe: which parts of the fence this node offers, by what means, and why the rest is missing."""

from __future__ import annotations

import errno

import msgspec

from milabench_ng.records.isolation import Mode, Tier
from milabench_ng.records.surroundings import CpuLimit


class Controller(msgspec.Struct, frozen=True):
    """One kind of limit. `parent` is the directory below which groups can be made; `why` it cannot, and the `fix`.

    `code` is the errno of the failed trial.
    """

    ok: bool
    via: str = ""
    parent: str = ""
    why: str = ""
    fix: str = ""
    code: int = 0


class SlurmJob(msgspec.Struct, frozen=True):
    """What a step over the whole job was observed to have on this node. `consumable`: Slurm counts memory (CR_*MEMORY).

    `cpus_held` and `memory_held`: whether the kernel enforced them (task/cgroup); `memory_bytes` is the job's.
    """

    id: str
    node: str
    cpus: tuple[int, ...]
    cpus_held: bool
    memory_held: bool
    memory_bytes: int | None
    consumable: bool
    gpus: bool

    @property
    def tier(self) -> Tier:
        """The best tier that its steps can give."""
        tiers: tuple[Tier, Tier, Tier] = ("affinity", "partial", "full")
        return tiers[self.cpus_held + (self.memory_held and self.consumable)]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not better, and what an administrator can do about it."""
        if self.tier == "full":
            return ()
        lack = [
            *([] if self.cpus_held else ["CPUs (cgroup.conf: ConstrainCores=yes)"]),
            *([] if self.memory_held else ["RAM (cgroup.conf: ConstrainRAMSpace=yes)"]),
            *([] if self.consumable else ["RAM per step (slurm.conf: SelectTypeParameters=CR_Core_Memory)"]),
        ]
        said = f"isolation: the kernel does not hold the steps of Slurm job {self.id} to their {', '.join(lack)}"
        return (f"{said}; needs TaskPlugin=task/cgroup.",)


class Capabilities(msgspec.Struct, frozen=True):
    """What a probe found. `unified` is a v2 directory for kill and pressure with v1 limits, empty if there is none.

    `slurm` is the allocation that this process runs in; None outside one.
    `own` is this process's own group on v2 (or its memory group on v1), whose limits apply to all that it starts.
    `above` is the group whose CPU quota, and that of those above it, holds for all groups that we make, `own_cpu` that
    of this process; empty if it cannot be seen. `quota` is the tightest above, if less than all `usable` CPUs.
    """

    mode: Mode
    kernel: str
    root: bool
    controllers: dict[str, Controller]
    unified: str = ""
    own: str = ""
    swap_bytes: int = 0
    messages: tuple[str, ...] = ()
    slurm: SlurmJob | None = None
    above: str = ""
    own_cpu: str = ""
    usable: int = 0
    quota: CpuLimit | None = None

    def ok(self, *names: str) -> bool:
        return all(name in self.controllers and self.controllers[name].ok for name in names)

    @property
    def tier(self) -> Tier:
        """The best available tier: a share of CPUs that a quota takes time from is not held."""
        if self.mode in ("mixed", "none"):
            return "affinity"
        tiers: tuple[Tier, Tier, Tier] = ("affinity", "partial", "full")
        return tiers[(self.ok("cpuset") and self.quota is None) + self.ok("memory")]

    @property
    def parents(self) -> tuple[str, ...]:
        """The directories below which runs make their groups: one for v2, one for each hierarchy of v1."""
        usable = (controller.parent for controller in self.controllers.values() if controller.ok)
        return tuple(dict.fromkeys([*usable, *([self.unified] if self.unified else [])]))


def name_of(code: int) -> str:
    """The name of an errno, such as `EACCES`."""
    return errno.errorcode.get(code, str(code))
