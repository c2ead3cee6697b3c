"""Explains a probe's findings, in sentences that name the cause and the fix."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.capabilities import Capabilities, Controller, name_of
from milabench_ng.fence.kernel.mounts import CgroupMount, find
from milabench_ng.model.units import GIB

_NO_PERMISSION = (errno.EACCES, errno.EPERM)
_ORDER = ("cpuset", "cpu", "io", "memory", "pids")


def explain(found: Capabilities, mounts: tuple[CgroupMount, ...], own: Mapping[str, str]) -> Capabilities:
    """The same capabilities, with messages."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    session = bool(runtime) and Path(f"{runtime}/bus").exists()
    return msgspec.structs.replace(found, messages=tuple(messages(found, mounts, own, session)))


def messages(
    found: Capabilities, mounts: tuple[CgroupMount, ...], own: Mapping[str, str], session: bool
) -> Iterator[str]:
    """One sentence for each obstacle, and one for a hybrid node that works.

    `own` are this process's groups by controller; `session`: whether there is a systemd user manager.
    """
    unified = find(mounts, "")
    if found.mode == "none":
        yield (
            "isolation: no cgroups are mounted, or another mount hides them. "
            "Mount cgroup2 on /sys/fs/cgroup (as root), or run mnb on the host."
        )
    if found.mode == "mixed":
        yield (
            "isolation: cpuset, memory and pids are spread over cgroup v1 and v2. Boot with one of them "
            "(systemd.unified_cgroup_hierarchy=1), or accept --isolation affinity (results get the warning "
            "NOT ISOLATED)."
        )
    if found.mode == "v2" and unified and own.get("", "/").startswith("/.."):
        yield (
            f"isolation: this process is in cgroup {own['']} outside the mounted tree; "
            "start the container with a private cgroup namespace."
        )
    needed = [found.controllers[name] for name in ("cpuset", "memory") if name in found.controllers]
    refused = next((controller for controller in needed if not controller.ok and controller.code), None)
    if refused is not None:
        yield _refusal(found, refused, session)
    if not found.ok("memory") and found.controllers.get("memory", Controller(True)).why == "disabled in the kernel":
        yield (
            "isolation: the memory controller is disabled in the kernel (cgroup_disable=memory on the command line, "
            "/proc/cgroups enabled=0). RAM cannot be limited. Remove it "
            "(Raspberry Pi/Debian: add cgroup_enable=memory) and reboot."
        )
    if found.mode in ("v1", "hybrid") and "swap" in found.controllers["memory"].why:
        yield (
            f"isolation: this machine has {found.swap_bytes / GIB:.1f} GiB swap and the kernel does not account it "
            "(no memory.memsw.limit_in_bytes): a tenant would swap instead of being stopped. "
            "swapoff -a, or boot with swapaccount=1."
        )
    if found.quota is not None:
        yield (
            f"isolation: {found.quota.group} has a CPU quota of {found.quota.cpus:g} CPUs, and the tenants would "
            f"divide {found.usable}: the kernel would make them wait. Remove the quota (docker: no --cpus; "
            "Kubernetes: no CPU limit; cpu.max or cpu.cfs_quota_us of that group), or give mnb only that many CPUs "
            "(docker: --cpuset-cpus)."
        )
    yield from _partial(found)
    yield from _not_handed_down(found)
    if found.mode == "hybrid" and found.unified and found.tier == "full":
        held = ", ".join(name for name in ("cpuset", "memory", "pids") if found.ok(name))
        yield f"isolation: hybrid cgroups: limits on v1 ({held}), kill and pressure on v2 ({found.unified})."


def _refusal(found: Capabilities, refused: Controller, session: bool) -> str:
    where, code = refused.parent, name_of(refused.code)
    if refused.code == errno.EROFS:
        return (
            f"isolation: {where} is mounted read-only (container). Docker: run with --privileged "
            "--cgroupns=private or -v /sys/fs/cgroup:/sys/fs/cgroup:rw (v1); Podman: --security-opt "
            "unmask=/sys/fs/cgroup --cgroups=split. Or run mnb on the host."
        )
    if refused.code == errno.EBUSY:
        return (
            f"isolation: cannot enable controllers in {where}: {refused.why}: EBUSY, no-internal-process rule. "
            "Start mnb as the container's only process, or pass --cgroup-parent to an empty group."
        )
    if refused.code not in _NO_PERMISSION:
        return f"isolation: cannot make groups in {where} ({code}). Check that --cgroup-parent names a group there."
    if found.mode in ("v1", "hybrid"):
        return (
            f"isolation: cgroup v1: no permission to create groups in {where} ({code}). cgroup v1 cannot be "
            "delegated to users. Run as root, boot with cgroup v2, or accept --isolation affinity (results "
            "get the warning NOT ISOLATED)."
        )
    if session:
        return (
            f"isolation: no write permission on {where}, and systemd gave no delegated scope. Run as root, or find out "
            "why this fails: systemd-run --user --scope -p Delegate=yes -- true"
        )
    return (
        f"isolation: no write permission on {where}; no systemd user session (XDG_RUNTIME_DIR unset or no bus). "
        "Run as root, or log in through systemd (loginctl enable-linger USER), or start mnb in a delegated cgroup."
    )


def _partial(found: Capabilities) -> Iterator[str]:
    """For a user's scope to which systemd delegates too little (its default: cpu, memory, pids)."""
    if found.mode != "v2" or found.root or found.tier != "partial":
        return
    have = " ".join(name for name in _ORDER if found.ok(name))
    lack = " and ".join(name for name in ("cpuset", "memory", "io") if not found.ok(name))
    yield (
        f'isolation: systemd delegates only "{have}" to this user: {lack} are missing, CPUs would be shared. As root: '
        "mkdir -p /etc/systemd/system/user@.service.d; printf '[Service]\\nDelegate=yes\\n' > "
        "/etc/systemd/system/user@.service.d/mnb.conf; systemctl daemon-reload; "
        f"systemctl restart user@{os.getuid()} (this ends the user's sessions)."
    )


def _not_handed_down(found: Capabilities) -> Iterator[str]:
    """For root, where a controller is missing only because a group above the parent does not pass it on."""
    lack = [name for name in ("cpuset", "memory") if name in found.controllers and not found.ok(name)]
    lost = [name for name in lack if found.controllers[name].why.startswith("not delegated")]
    if found.mode == "v2" and found.root and lost:
        where = found.controllers[lost[0]].parent
        yield (
            f"isolation: {where} has no {' and '.join(lost)} controller, because a group above keeps it. Write "
            f'"{" ".join(f"+{name}" for name in lost)}" to the cgroup.subtree_control of every group above '
            "(from /sys/fs/cgroup down), or choose another --cgroup-parent."
        )
