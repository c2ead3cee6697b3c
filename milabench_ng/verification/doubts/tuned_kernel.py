"""A kernel that is tuned beyond what installers do, works around no faults, or is covered where it tells of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from milabench_ng.verification.checks.changed_settings import UNSAFE
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_TUNED = re.compile(
    r"(idle|(intel_idle|processor)\.max_cstate|intel_pstate|amd_pstate|cpufreq\.\w+|isolcpus|nohz_full|rcu_nocbs"
    r"|nosmt|nowatchdog|nosoftlockup|skew_tick|clocksource|lpj|mem|maxcpus|nr_cpus)(=.*)?"
)
"""Parameters that make CPUs faster or leave some out (kernel-parameters.rst). Installers set dozens of others."""
_CLOCK_SOURCES = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
"""Clocks that the CPU counts (timekeeping.rst); others cost a system call, or are emulated."""

_MASKED = re.compile(
    r"\w+ (\S+ )?on (/proc/(acpi|asound|interrupts|kcore|keys|kmsg|latency_stats|timer_list|timer_stats|sched_debug"
    r"|scsi|sysrq-trigger|driver/nvidia|sys/kernel/random/boot_id)|/sys/(dev/block|firmware|fs/(cgroup|selinux)"
    r"|devices/virtual/powercap|devices/system/cpu/cpu\d+/thermal_throttle))(/.*)?"
)
"""What runtimes of containers hide (runc, crun, podman, systemd-nspawn), and NVIDIA's toolkit shows."""

_LXCFS = re.compile(
    r"fuse\.lxcfs on (/proc/(cpuinfo|diskstats|loadavg|meminfo|slabinfo|stat|swaps|uptime|pressure/(cpu|io|memory))"
    r"|/sys/devices/system/cpu(/online)?)"
)
"""What lxcfs shows containers in place of the node's (its README); in no container it has nothing to show."""

_IN_SOFTWARE = ("meltdown", "spectre_v2")
"""Faults of CPUs that every kernel works around by itself; others need what guests and old microcode lack."""
_OFF = re.compile("Vulnerable([;,].*)?")


def _tuned(evidence: Evidence) -> Iterator[str]:
    edges = (edge for one in evidence.records for edge in one.record.mnb.conditions.values())
    hosts = [edge.settings.host for edge in edges if edge.settings is not None]
    for line in dict.fromkeys(host.command_line or "" for host in hosts):
        for word in line.partition(" -- ")[0].split():
            if (_TUNED.fullmatch(word) or word in UNSAFE) and word not in evidence.rules.listed:
                yield f"the kernel was started with {word}"
    for source in dict.fromkeys(host.clock_source for host in hosts):
        if source is not None and source not in _CLOCK_SOURCES and source not in evidence.rules.listed:
            yield f"the kernel reads the time from {source}"
    contained = evidence.manifest.inventory.container is not None
    for mount in dict.fromkeys(mount for host in hosts for mount in host.covered or ()):
        usual = _MASKED.fullmatch(mount) or (contained and _LXCFS.fullmatch(mount))
        if not usual and mount not in evidence.rules.listed:
            yield f"a file of the kernel is hidden by a mount: {mount}"
    for fault, state in dict.fromkeys(pair for host in hosts for pair in host.mitigations.items()):
        if fault in _IN_SOFTWARE and _OFF.fullmatch(state) and fault not in evidence.rules.listed:
            yield f"the kernel's mitigation of {fault} is off: {state}"


DOUBT = Doubt(
    name="tuned-kernel",
    title="unusual kernel settings",
    ask="ask whether the nodes are sold with them; `listed` in the rules accepts them",
    look=_tuned,
)
