"""Settings of the kernel that hardly any node has: nobody can list all that installers set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence

_KERNEL = re.compile(
    r"(BOOT_IMAGE|boot|root|root(flags|fstype|wait|delay)|ro|rw|(rd)?init|initrd|(no)?resume|quiet|splash|rhgb"
    r"|fsck\.\w+|console|earlycon|earlyprintk|loglevel|panic|reboot|crashkernel|systemd|(rd|systemd|locale)\.[\w.]+"
    r"|vt\.handoff|net\.ifnames|biosdevname|ip|LANG|KEYTABLE|SYSFONT|fips|selinux|enforcing|apparmor|security|lsm"
    r"|audit|audit_backlog_limit|ima\w*|tpm\w*\.\w+|random\.trust_\w+|cgroup\w*|swapaccount|psi"
    r"|(intel_|amd_)?iommu|iommu\.\w+|swiotlb|pci|pcie_\w+|acpi\w*|efi|numa|numa_balancing|tsc|no_timer_check"
    r"|nomodule|modprobe\.blacklist|module_blacklist|rdblacklist|nomodeset|(nouveau|nvidia-drm|ast)\.modeset|video|vga"
    r"|gfxpayload|nofb|nvme[-\w]*\.\w+|scsi_mod\.\w+|ipmi\w*\.\w+|i8042\.\w+|virtio_mmio\.device|elevator"
    r"|(default_)?hugepagesz|hugepages|transparent_hugepage|softlockup_panic|nmi_watchdog"
    r"|ostree|ignition\.[\w.]+|\$ignition_\w+|coreos\.[\w.]+|mount\.\w+|cloud-init|ds"  # CoreOS, OpenStack
    r"|page_reporting\.page_reporting_order|deferred_init|memhp_default_state|nested_pvm|fc_dmapin"  # of guests
    r"|driver_async_probe)(=.*)?"
    r"|mitigations=auto[\w,]*"
)
"""What installers of RHEL, Ubuntu, CoreOS, DGX OS and images of OpenStack and Firecracker set: how it boots, what it
logs, how memory is paged and which devices it drives (kernel-parameters.rst)."""
_CLOCK_SOURCES = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
"""Clocks that the CPU counts (timekeeping.rst); others cost a system call, or are emulated."""

_MASKED = re.compile(
    r"\w+ (\S+ )?on (/proc/(acpi|asound|interrupts|kcore|keys|latency_stats|timer_list|timer_stats|sched_debug|scsi"
    r"|sysrq-trigger|driver/nvidia)|/sys/(firmware|fs/cgroup|devices/virtual/powercap"
    r"|devices/system/cpu/cpu\d+/thermal_throttle))(/.*)?"
)
"""What container runtimes hide, and NVIDIA's toolkit shows."""

_IN_SOFTWARE = ("meltdown", "spectre_v2")
"""Faults of CPUs that every kernel works around by itself; others need what guests and old microcode lack."""
_OFF = re.compile("Vulnerable([;,].*)?")


def _unlisted(evidence: Evidence) -> Iterator[str]:
    edges = (edge for one in evidence.records for edge in one.record.mnb.conditions.values())
    hosts = [edge.settings.host for edge in edges if edge.settings is not None]
    for line in dict.fromkeys(host.command_line or "" for host in hosts):
        for word in line.partition(" -- ")[0].split():
            if not _KERNEL.fullmatch(word) and word not in evidence.rules.listed:
                yield f"the kernel was started with {word}"
    for source in dict.fromkeys(host.clock_source for host in hosts):
        if source is not None and source not in _CLOCK_SOURCES and source not in evidence.rules.listed:
            yield f"the kernel reads the time from {source}"
    for mount in dict.fromkeys(mount for host in hosts for mount in host.covered or ()):
        if not _MASKED.fullmatch(mount) and mount not in evidence.rules.listed:
            yield f"what the kernel tells is covered: {mount}"
    for fault, state in dict.fromkeys(pair for host in hosts for pair in host.mitigations.items()):
        if fault in _IN_SOFTWARE and _OFF.fullmatch(state) and fault not in evidence.rules.listed:
            yield f"the kernel does not work around {fault}: {state}"


DOUBT = Doubt(
    name="unlisted-settings",
    title="settings of the kernel that few nodes have",
    ask="ask what they are for; `listed` in the rules accepts them",
    look=_unlisted,
)
