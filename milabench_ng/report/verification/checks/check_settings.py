"""The rule on settings: what is not on the list of the closed division puts a run into the open one, by name.

As in SPEC's run rules, the list says what may be set, not what may not: a setting that nobody thought of is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from milabench_ng.records.ledger import CodeSeen
from milabench_ng.records.proof import CodeProof
from milabench_ng.report.verification.checks.setting_values import LOADS_CODE, lacking, odd_values, of_python
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import OFF, Finding, judged

ENVIRONMENT = re.compile(
    r"PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|USER|LOGNAME|XDG_CACHE_HOME|TMPDIR|PYTHONPYCACHEPREFIX"
    r"|TORCH_DEVICE_BACKEND_AUTOLOAD|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_HOME|CUDA_PATH|CUDA_CACHE_PATH"
    r"|(CUDA|CUDA_DRIVER|CUBLAS|CUDNN|NCCL|NVIDIA_\w+)_VERSION|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+)"
    r"|NVIDIA_PRODUCT_NAME|TORCH_CUDA_ARCH_LIST"  # of container images: a label, and what extensions are compiled for
    r"|(NCCL|NVSHMEM|UCX|GLOO)_\w+"  # the fabric, which the operator sets up
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|PYTHON_CPU_COUNT"  # this and the rest set by mnb
    r"|MNB_(CPUS|RAM_BYTES|STORAGE|DATAROOT|OUTROOT|SCOPE)"
)
"""Variables that say where things are, which devices there are and how they are connected."""
KERNEL = re.compile(
    r"(BOOT_IMAGE|root|root(flags|fstype|wait|delay)|ro|rw|(rd)?init|initrd|(no)?resume|quiet|splash|fsck\.\w+"
    r"|console|earlycon|earlyprintk|loglevel|panic|reboot|crashkernel|systemd|(rd|systemd|locale)\.[\w.]+|vt\.handoff"
    r"|net\.ifnames|biosdevname|ip|LANG|KEYTABLE|SYSFONT|fips|selinux|enforcing|apparmor|security|lsm"
    r"|audit|audit_backlog_limit|ima\w*|tpm\w*\.\w+|random\.trust_\w+|cgroup\w*|swapaccount|psi"
    r"|(intel_|amd_)?iommu|iommu\.\w+|swiotlb|pci|pcie_\w+|acpi\w*|efi|numa|tsc|no_timer_check"
    r"|nomodule|modprobe\.blacklist|module_blacklist|rdblacklist|nomodeset|nouveau\.modeset|video|vga"
    r"|nvme\w*\.\w+|scsi_mod\.\w+|ipmi\w*\.\w+|i8042\.\w+|virtio_mmio\.device|elevator"
    r"|(default_)?hugepagesz|hugepages|transparent_hugepage|softlockup_panic|nmi_watchdog"
    r"|page_reporting\.page_reporting_order|deferred_init|memhp_default_state|nested_pvm|fc_dmapin"  # of guests
    r"|driver_async_probe)(=.*)?"
    r"|mitigations=auto[\w,]*"
)
"""Parameters of the kernel (kernel-parameters.rst) that say how it boots, what it logs and which devices it drives.

Those of guests say how a virtual machine gets its memory, gives it back and maps it for devices: the hypervisor's
business, which adds no CPU, memory or device, and lets no instruction run that would not.
"""
CLOCK_SOURCES = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
"""Clocks that the CPU counts (timekeeping.rst); others cost a system call, or are emulated."""


def settings(evidence: Evidence) -> Finding:
    """Environment, kernel parameters, clock and import path are on the list of the closed division."""
    if not evidence.rules.closed:
        return OFF
    found = [*_environment(evidence), *_kernel(evidence), *_import_path(evidence)]
    return judged(f"open division: {what}" for what in found)


def _environment(evidence: Evidence) -> Iterator[str]:
    roots, listed = _roots(evidence), evidence.rules.listed
    for one in evidence.good:
        mnb = one.record.mnb
        for name, value in mnb.environment.items():
            known = ENVIRONMENT.fullmatch(name) and not LOADS_CODE.fullmatch(name)
            if not known and name not in listed and f"{name}={value}" not in listed:
                yield f"the environment has {name}={value}"
        yield from (f"the environment has {text}" for what, text in odd_values(one.record, roots) if what not in listed)
        if roots:
            own = evidence.builtin.get(mnb.launch.workload)
            names = lacking(mnb, stores=own is not None and own.stores)
            yield from (f"the environment is recorded without {name}" for name in names)


def _codes(evidence: Evidence) -> list[CodeProof]:
    events = evidence.ledger.events if evidence.ledger else ()
    return [event.code for event in events if isinstance(event, CodeSeen)]


def _roots(evidence: Evidence) -> set[str]:
    """Folders of the Python installation, its environment and mnb; empty for a version that does not tell them."""
    return {folder for code in _codes(evidence) for folder in (code.base, code.prefix, code.folder)}


def _kernel(evidence: Evidence) -> Iterator[str]:
    edges = (edge for one in evidence.records for edge in one.record.mnb.conditions.values())
    hosts = [edge.settings.host for edge in edges if edge.settings is not None]
    for line in dict.fromkeys(host.command_line or "" for host in hosts):
        for word in line.partition(" -- ")[0].split():
            if not KERNEL.fullmatch(word) and word not in evidence.rules.listed:
                yield f"the kernel was started with {word}"
    for source in dict.fromkeys(host.clock_source for host in hosts):
        if source is not None and source not in CLOCK_SOURCES and source not in evidence.rules.listed:
            yield f"the kernel reads the time from {source}"


def _import_path(evidence: Evidence) -> Iterator[str]:
    """Folders of the import path that belong neither to the Python installation nor to the one environment of mnb."""
    codes = _codes(evidence)
    if codes and not evidence.manifest.import_path:
        yield "the import path is not recorded"
    wheels = {one.folder for code in codes for one in code.wheels.values() if one is not None}
    own = {code.folder for code in codes} | (wheels if len(wheels) == 1 else set())
    for folder in evidence.manifest.import_path if codes else ():
        path = PurePath(folder)
        named = {folder, str(path.parent)} if path.name == "bin" else {folder}
        known = own & named or any(of_python(folder, root) for code in codes for root in (code.base, code.prefix))
        if not known and folder not in evidence.rules.listed:
            yield f"the import path has {folder}"
