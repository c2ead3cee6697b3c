"""What ``jobs``, ``run`` and ``rerun`` share: where to run, behind which fence, from and to which folders."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from milabench_ng.cli.options import (
    DATA,
    FAILURES,
    MEASURING,
    SHARES,
    CgroupParent,
    DataRoot,
    GpusOption,
    RamTotal,
    Several,
    Switch,
    Whole,
)
from milabench_ng.fence.choosing import IsolationRequest
from milabench_ng.fence.io import rate_of
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import nearest, read_text, why_unwritable
from milabench_ng.model.plain import plain, short
from milabench_ng.model.profile import AnyProfile, IoShare, TimeLimits, parse_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import parse_bytes, utc_now
from milabench_ng.records.endurance import part_s
from milabench_ng.records.window import MEASURED_BY, WindowRule
from milabench_ng.run.execution.caching import Cache
from milabench_ng.run.planning.request import RunRequest


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """Common to all commands that run workloads.

    Parameters
    ----------
    tenants
        Number of tenants. They get the first GPUs, or CPU partitions on a node without GPUs (default 2).
    slots_per_device
        Let this many tenants share each GPU or CPU partition equally. Results get a comparability warning.
    isolation
        auto, full, partial, affinity or none. auto takes the best available, full refuses anything less (exit code 3).
    io_read
        Limit on a tenant's reads from the data root's disk, such as 1000MiB/s, instead of the profile's.
    io_write
        The same for writes.
    cache_shares
        Give every tenant an equal part of the last-level cache and of memory bandwidth through resctrl (exit code 3
        where unavailable). Results get a comparability warning.
    cold_start
        Start every worker as a new interpreter instead of a fork of the worker server.
    cache
        Page cache of the dataset's files before each launch group: evicted or read, for all tenants.
    data_scale
        Size of the synthetic datasets relative to the real ones, instead of the profile's.
    classic_data
        Read the noise images of milabench 2020 (512 x 512) instead of ImageNet. Results get a comparability warning.
    output
        Result folder, or FILE.json for one record (`mnb run`). Default: a new results-DATE in $MNB_OUTROOT
        or here.
    window
        Average over this many seconds instead of 9. Shorter windows are not comparable.
    allow_concurrent
        Run even if another mnb uses some of the CPUs or GPUs. Results of both get a comparability warning.
    reserve_cores
        Reserve this many cores for mnb and other processes.
    ready_limit
        Kill a worker that is not ready after this many seconds, instead of the profile's limit.
    silence_limit
        Kill a worker that finishes no slice for this many seconds.
    total_limit
        Kill a worker this many seconds after it was requested.
    pass_env
        Pass this variable to the workers although it can load other code, such as LD_LIBRARY_PATH for libcuda. It is
        recorded, and results belong to the open division. May be repeated.
    skip_data_check
        Do not check the datasets against their checksums. Results get a comparability warning.
    spool
        Folder for results while the result folder is not writable (disk full, read-only or gone). With --resume also a
        file with the results that a run printed.
    """

    tenants: Whole | None = None
    slots_per_device: Annotated[Whole, SHARES] = 1
    gpus: GpusOption = ""
    isolation: IsolationRequest = "auto"
    io_read: Annotated[str | None, SHARES] = None
    io_write: Annotated[str | None, SHARES] = None
    cache_shares: Annotated[Switch, SHARES] = False
    ram_total: Annotated[RamTotal, SHARES] = None
    cgroup_parent: Annotated[CgroupParent, SHARES] = None
    cold_start: Annotated[bool, MEASURING] = False
    cache: Annotated[Cache, DATA] = "cold"
    dataroot: DataRoot = None
    data_scale: Annotated[float | None, DATA] = None
    classic_data: Annotated[Switch, DATA] = False
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None
    window: Annotated[float | None, MEASURING] = None
    allow_concurrent: Annotated[bool, SHARES] = False
    reserve_cores: Annotated[Whole, SHARES] = 0
    ready_limit: Annotated[float | None, FAILURES] = None
    silence_limit: Annotated[float | None, FAILURES] = None
    total_limit: Annotated[float | None, FAILURES] = None
    pass_env: Annotated[Several, MEASURING] = ()
    skip_data_check: Annotated[Switch, DATA] = False
    spool: Annotated[Path | None, FAILURES] = None

    def profile_request(self, profile: Path) -> RunRequest:
        """The request made of these options and a profile, given as a file or a shipped profile's name."""
        file = file_of_profile(profile)
        return self.request(parse_profile(file.stem, read_text(file), plain(file)))

    def request(self, profile: AnyProfile) -> RunRequest:
        for option, limit in (("--io-read", self.io_read), ("--io-write", self.io_write)):
            rate_of(limit, option)  # a mistake is the option's, and not the profile's
        return RunRequest(
            profile=profile,
            tenants=self.tenants,
            slots_per_device=self.slots_per_device,
            gpus=tuple(name for name in self.gpus.split(",") if name),
            isolation=self.isolation,
            io=IoShare(read=self.io_read, write=self.io_write),
            cache_shares=self.cache_shares,
            reserved_cores=not_negative(self.reserve_cores, "--reserve-cores"),
            ram_total_bytes=None if self.ram_total is None else parse_bytes(self.ram_total, "--ram-total"),
            cgroup_parent=self.cgroup_parent,
            start="cold" if self.cold_start else "warm",
            cache=self.cache,
            data_scale=self.data_scale,
            classic_data=self.classic_data,
            dataroot=data_root(self.dataroot),
            outdir=(self.output or default_output()).absolute(),
            rule=window_rule(self.window),
            allow_concurrent=self.allow_concurrent,
            limits=TimeLimits(
                ready=positive(self.ready_limit, "--ready-limit"),
                silence=positive(self.silence_limit, "--silence-limit"),
                total=positive(self.total_limit, "--total-limit"),
            ),
            pass_environment=self.pass_env,
            trust_data=self.skip_data_check,
            spool=self.spool and self.spool.resolve(),
        )


def file_of_profile(profile: Path) -> Path:
    """The file of a profile that a user named. Raises InputError, also for the name of a workload."""
    if not os.path.lexists(profile) and (name := str(profile)) in read_builtin():
        raise InputError(f"{name} is a workload, not a profile. Run it with: mnb run {name}")
    return profile_file(profile)


_UNIT = re.compile(r"h|hours?|mins?|minutes?|s|secs?|seconds?|days?|[KMGT]i?B", re.IGNORECASE)


def refuse_words(flags: Sequence[str], instead: str) -> None:
    """Raise InputError for a word that is no option of a workload, nor the value of one; ``instead``: what to write."""
    if not flags or flags[0].startswith("-"):
        return
    option, given, value = flags[0].partition("=")
    if given:
        raise InputError(f"{flags[0]}: workload options begin with dashes. Write -- --{option} {value}")
    if _UNIT.fullmatch(flags[0]):
        instead = "Write a number and its unit as one word, such as 6h or 30min"
    raise InputError(f"{flags[0]}: unexpected word. {instead}")


def positive(seconds: float | None, option: str) -> float | None:
    """A limit in seconds, if one was given."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise InputError(f"{option}: expected a number of seconds above 0, got {seconds:g}")
    return seconds


def not_negative(number: int, option: str) -> int:
    if number < 0:
        raise InputError(f"{option}: expected at least 0, got {number}")
    return number


def data_root(asked: Path | None) -> Path:
    """``-d``, else ``$MNB_DATAROOT``, else the user's cache folder (XDG).

    Raises InputError if it cannot be a folder: a file, something below a file, a name that is too long; no home.
    """
    named = asked or os.environ.get("MNB_DATAROOT")
    root = Path(named).absolute() if named else _cache_folder() / "milabench_ng"
    try:
        reason = "" if stat.S_ISDIR(root.stat().st_mode) else "not a folder"
    except FileNotFoundError:
        reason = ""  # it will be made
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise InputError(f"data root {short(str(root))}: {reason}. Name a folder with --dataroot or MNB_DATAROOT")
    return root


def _cache_folder() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named) if named else Path.home() / ".cache"
    except RuntimeError:
        raise InputError(
            f"data root: HOME is not set, and user {os.getuid()} has no entry in /etc/passwd. Set HOME, or "
            "name a folder with --dataroot or MNB_DATAROOT"
        ) from None


def default_output() -> Path:
    """A new folder named after the date (UTC), in ``$MNB_OUTROOT`` or here."""
    root = Path(os.environ.get("MNB_OUTROOT", "."))
    if "MNB_OUTROOT" in os.environ and (why := why_unwritable(nearest(root))):
        raise InputError(f"MNB_OUTROOT={plain(root)}: not writable ({why}). Set another folder, or name one with -o")
    return root / f"results-{utc_now():%Y%m%d-%H%M%S}"


def window_rule(seconds: float | None) -> WindowRule:
    """The averaging window; a shorter one also settles for less time."""
    if seconds is None:
        return MEASURED_BY
    if not 0.5 <= seconds <= 3600:
        raise InputError(f"--window: expected 0.5 to 3600 seconds, got {seconds:g}")
    part = min(1.0, seconds / MEASURED_BY.length_s)
    return msgspec.structs.replace(
        MEASURED_BY,
        length_s=seconds,
        settle_s=MEASURED_BY.settle_s * part,
        margin_s=MEASURED_BY.margin_s * part,
    )


def lasting_rule(rule: WindowRule, seconds: float) -> WindowRule:
    """The rule of launches that work for so many ``seconds``: all of them before the window are for settling.

    Unless a window was asked for, it is the part whose rate the report compares with that of the beginning.
    """
    if seconds < rule.total_s:
        raise InputError(f"--for: a launch works for at least {rule.total_s:g} s anyway, got {seconds:g} s")
    last_s = part_s(seconds - rule.settle_s - rule.margin_s)
    length_s = max(rule.length_s, last_s) if rule == MEASURED_BY else rule.length_s
    return msgspec.structs.replace(rule, length_s=length_s, settle_s=seconds - length_s - rule.margin_s)
