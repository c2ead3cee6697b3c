"""What of the fence can be had on this node, through what, and why the rest cannot: the answer of a probe."""

from __future__ import annotations

import errno

import msgspec

from milabench_ng.records.isolation import Mode, Tier


class Controller(msgspec.Struct, frozen=True):
    """One kind of limit. `parent` is the directory below which groups can be made; `why` not, and what is the `fix`.

    `code` is the errno of the trial that failed.
    """

    ok: bool
    via: str = ""
    parent: str = ""
    why: str = ""
    fix: str = ""
    code: int = 0


class SlurmJob(msgspec.Struct, frozen=True):
    """What a step over the whole job, on this node, was seen to have. `consumable`: Slurm counts memory (CR_*MEMORY).

    `cpus_held` and `memory_held` tell whether the kernel held it to them (task/cgroup); `memory_bytes` is the job's.
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
        """The best that its steps can give."""
        tiers: tuple[Tier, Tier, Tier] = ("affinity", "partial", "full")
        return tiers[self.cpus_held + (self.memory_held and self.consumable)]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is no more, and what an administrator can do about it."""
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
    """What a probe found. `unified` is a v2 directory for kill and pressure beside v1 limits, empty if there is none.

    `slurm` is the allocation that this process runs in, None outside of one.
    `own` is this process's own group on v2 (or its memory group on v1), whose limits hold for whatever it starts.
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

    def ok(self, *names: str) -> bool:
        return all(name in self.controllers and self.controllers[name].ok for name in names)

    @property
    def tier(self) -> Tier:
        """The best tier that can be had."""
        if self.mode in ("mixed", "none"):
            return "affinity"
        tiers: tuple[Tier, Tier, Tier] = ("affinity", "partial", "full")
        return tiers[self.ok("cpuset") + self.ok("memory")]

    @property
    def parents(self) -> tuple[str, ...]:
        """The directories below which runs make their groups: one for v2, one for each hierarchy of v1."""
        usable = (controller.parent for controller in self.controllers.values() if controller.ok)
        return tuple(dict.fromkeys([*usable, *([self.unified] if self.unified else [])]))


def name_of(code: int) -> str:
    """`EACCES` for its number."""
    return errno.errorcode.get(code, str(code))
