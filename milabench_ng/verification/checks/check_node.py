"""Rules on the node: all of its GPUs, in their default configuration, and no other users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milabench_ng.analysis.baselines.peaks import peak
from milabench_ng.model.units import counted
from milabench_ng.node.conditions import Conditions, throttled_fraction
from milabench_ng.node.gpu_conditions import FAULTS, GpuSettings, GpuState
from milabench_ng.records.ledger import Resumed
from milabench_ng.records.manifest import Manifest
from milabench_ng.verification.checks.changed_settings import (
    changed_settings,
    overclocked,
    without_mitigations,
)
from milabench_ng.verification.checks.clocks import boots
from milabench_ng.verification.checks.counters import falling_counters
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged, unknown

_NO_GPU = "the node has no GPU"


def every_gpu(evidence: Evidence) -> Finding:
    """Every GPU on the PCI bus worked, including all its MIG instances; there are as many as demanded, and whole."""
    rules = evidence.rules
    found = list(_cut(evidence)) if rules.whole_gpus else []
    if rules.every_gpu or rules.gpus is not None:
        found += [*_none_at_work(evidence), *_idle_gpus(evidence), *_unlisted(evidence), *_too_few(evidence)]
    elif not rules.whole_gpus:
        return OFF
    return judged(found)


def _none_at_work(evidence: Evidence) -> Iterator[str]:
    if evidence.rules.every_gpu and all(device.kind == "cpu" for device in evidence.manifest.plan.devices):
        yield "no GPU worked"


def _cut(evidence: Evidence) -> Iterator[str]:
    for device in evidence.manifest.plan.devices:
        if device.kind == "mig" or device.known_part < 1 or " MIG " in device.name:
            yield f"device {device.index} is {device.name}, a part of a GPU, but the rules require whole GPUs"


def _idle_gpus(evidence: Evidence) -> Iterator[str]:
    inventory = evidence.manifest.inventory
    working = {device.uuid for device in evidence.manifest.plan.devices if device.uuid is not None}
    used = {gpu.pci_bus_id for gpu in inventory.gpus if gpu.uuid in working}
    unlisted = used - {one.pci_bus_id for one in inventory.pci_gpus}
    yield from (f"the list of the PCI bus lacks the GPU at {bus}, which worked" for bus in sorted(unlisted))
    vendors = {one.vendor for one in inventory.pci_gpus if one.pci_bus_id in used}
    for one in inventory.pci_gpus:
        # Next to working GPUs, a display controller of another vendor is not part of the offer.
        if one.pci_bus_id not in used and (not vendors or one.vendor in vendors):
            driver = one.driver or "no driver"
            yield f"the GPU at {one.pci_bus_id} ({one.vendor} {one.device_id}, {driver}) did not work"
    for gpu in inventory.gpus:
        if gpu.uuid not in working and gpu.pci_bus_id in used:
            yield f"the instance {gpu.uuid} of the GPU at {gpu.pci_bus_id} did not work"


def _unlisted(evidence: Evidence) -> Iterator[str]:
    """GPUs in the launches' conditions that are missing from the inventory: it was edited."""
    listed = {uuid for gpu in evidence.manifest.inventory.gpus for uuid in (gpu.uuid, gpu.board)}
    seen = dict.fromkeys(uuid for _, edge in _edges(evidence) for uuid in edge.gpus)
    yield from (
        f"launches saw the GPU {uuid}, but the inventory does not list it" for uuid in seen if uuid not in listed
    )


def _too_few(evidence: Evidence) -> Iterator[str]:
    demanded = evidence.rules.gpus
    kinds = [device for device in evidence.manifest.plan.devices if device.kind != "cpu"]
    boards = evidence.boards
    worked = {boards.get(device.uuid, device.uuid) for device in kinds}
    if demanded is not None and len(worked) != demanded:
        yield f"{counted(len(worked), 'GPU')} worked, {demanded} required"
    known = {device.index for device in evidence.manifest.plan.devices}
    idle = known - {index for kept in evidence.good for index in kept.record.mnb.launch.devices}
    yield from (f"device {index} is in the plan and has no result" for index in sorted(idle))


def _edges(evidence: Evidence) -> Iterator[tuple[str, Conditions]]:
    for name, record in evidence.named():
        for edge in record.mnb.conditions.values():
            yield name, edge


def _settings(evidence: Evidence) -> Iterator[tuple[str, str, GpuSettings]]:
    for name, edge in _edges(evidence):
        for uuid, settings in (edge.settings.gpus if edge.settings else {}).items():
            yield name, uuid, settings


def _shows_none(evidence: Evidence) -> bool:
    """Whether neither the plan nor the recorded settings have a GPU."""
    planned = any(device.kind != "cpu" for device in evidence.manifest.plan.devices)
    return not planned and not any(True for _ in _settings(evidence))


def _unread(evidence: Evidence) -> Iterator[str]:
    """Launches whose own GPUs were not read both before and after all of their work."""
    boards = evidence.boards
    for kept in evidence.good:
        mnb = kept.record.mnb
        before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
        if before is None or after is None:
            yield f"{kept.name}: its conditions were not read {'before' if before is None else 'after'} it"
            continue
        begin, end = mnb.start_s, mnb.stop_s
        if begin is None or end is None or not before.time_s <= begin < end <= after.time_s:
            yield f"{kept.name}: its conditions were not read before its start and after its stop"
        settings = before.settings.gpus if before.settings else {}
        for uuid in dict.fromkeys(boards.get(one.uuid, one.uuid) for one in mnb.devices if one.uuid is not None):
            lacking = [where for where, known in (("before", before.gpus), ("after", after.gpus)) if uuid not in known]
            if lacking or uuid not in settings:
                what = f"state {' and '.join(lacking)} it" if lacking else "settings"
                yield f"{kept.name}: the {what} of its GPU {uuid} was not read"
            else:
                yield from (
                    f"{kept.name}: {uuid} reported {what} before it, but not after it"
                    for what in _told(before.gpus[uuid]) - _told(after.gpus[uuid])
                )


def _told(state: GpuState) -> set[str]:
    """The values that rules examine and the GPU reports."""
    looked_at = {"ecc_uncorrected": state.ecc_uncorrected, "processes": state.foreign_pids}
    return {what for what, one in (looked_at | state.throttled_ns).items() if one is not None}


def ecc(evidence: Evidence) -> Finding:
    """Error correction of the GPUs' memory was on and found no uncorrectable errors."""
    if not evidence.rules.ecc:
        return OFF
    if _shows_none(evidence):
        return unknown(_NO_GPU)
    return judged([*_unread(evidence), *_ecc_off(evidence), *_ecc_errors(evidence)])


def _ecc_off(evidence: Evidence) -> Iterator[str]:
    for name, uuid, settings in _settings(evidence):
        if settings.ecc is None:
            yield f"{name}: {uuid} does not say whether ECC is on"
        elif settings.ecc is False or settings.ecc_pending is False:
            yield f"{name}: ECC of {uuid} is off{'' if settings.ecc is False else ' after the next reset'}"


def _ecc_errors(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        before, after = record.mnb.conditions.get("before"), record.mnb.conditions.get("after")
        for uuid, state in (after.gpus if after else {}).items():
            first = before.gpus.get(uuid) if before else None
            if (state.ecc_uncorrected or 0) > ((first.ecc_uncorrected if first else None) or 0):
                yield f"{name}: {uuid} had memory errors that ECC could not correct"
            if state.remapped_rows is not None and any(state.remapped_rows[2:]):
                yield f"{name}: {uuid} has rows of memory that wait to be remapped or could not be"


def clocks(evidence: Evidence) -> Finding:
    """Power limits and clocks are the default ones, neither heat nor a brake held clocks down, mitigations are on."""
    rules = evidence.rules
    if not rules.default_power and not rules.mitigations and rules.throttled is None:
        return OFF
    unsafe = list(without_mitigations(evidence)) if rules.mitigations else []
    if _shows_none(evidence):
        return judged(unsafe) if unsafe else unknown(_NO_GPU)
    fast = overclocked(evidence) if rules.default_power else ()
    return judged([*_unread(evidence), *_power_limits(evidence), *fast, *_throttled(evidence), *unsafe])


def _power_limits(evidence: Evidence) -> Iterator[str]:
    if not evidence.rules.default_power:
        return
    for name, uuid, settings in _settings(evidence):
        limit, default = settings.power_limit_w, settings.default_power_limit_w
        if limit is None or default is None:
            yield f"{name}: {uuid} does not say its power limit{'' if limit is None else ' by default'}"
        elif limit != default:
            yield f"{name}: the power limit of {uuid} is {limit:g} W, its default {default:g} W"


def _throttled(evidence: Evidence) -> Iterator[str]:
    cap = evidence.rules.throttled
    boards = evidence.boards
    for name, record in evidence.named():
        before, after = record.mnb.conditions.get("before"), record.mnb.conditions.get("after")
        if cap is None or before is None or after is None or after.time_s <= before.time_s:
            continue
        own = {boards.get(device.uuid, device.uuid) for device in record.mnb.devices}
        for uuid, reasons in throttled_fraction(before, after).items():
            for reason in FAULTS if uuid in own else ():
                if reason not in reasons:
                    yield f"{name}: {uuid} does not report for how long {reason} held its clocks down"
                elif reasons[reason] > cap:
                    yield f"{name}: {reason} held the clocks of {uuid} down {reasons[reason]:.1%} of the time"


def foreign(evidence: Evidence) -> Finding:
    """No foreign process was on the GPUs before or after a batch."""
    if not evidence.rules.foreign_refused:
        return OFF
    states = [(name, uuid, gpu) for name, edge in _edges(evidence) for uuid, gpu in edge.gpus.items()]
    if _shows_none(evidence):
        return unknown(_NO_GPU)
    return judged([*_unread(evidence), *_foreign_processes(states)])


def _foreign_processes(states: Iterable[tuple[str, str, GpuState]]) -> Iterator[str]:
    for name, uuid, gpu in states:
        if gpu.foreign_pids is None:
            yield f"{name}: {uuid} does not say which processes it runs"
        elif gpu.foreign_pids:
            yield f"{name}: processes {', '.join(map(str, gpu.foreign_pids))} of others on {uuid}"


def one_node(evidence: Evidence) -> Finding:
    """All records come from one node, one version of mnb and one set of devices: those of run.json."""
    seen = (*_other_nodes(evidence), *_other_devices(evidence.manifest))
    return judged([*seen, *boots(evidence), *falling_counters(evidence), *changed_settings(evidence)])


def _other_devices(manifest: Manifest) -> Iterator[str]:
    """Devices of the plan that are something else in the inventory, or nothing: many rules follow from them."""
    listed = {gpu.uuid: gpu for gpu in manifest.inventory.gpus}
    for device in manifest.plan.devices:
        gpu = listed.get(device.uuid or "")
        if device.kind == "cpu":
            if device.uuid is not None or device.name != "CPU":
                yield f"device {device.index} is called a CPU, and is {device.name} ({device.uuid or 'without a UUID'})"
        elif gpu is None:
            yield f"device {device.index} ({device.name}) is not in the inventory"
        elif (device.name, device.kind) != (gpu.name, kind := "mig" if gpu.mig else "gpu"):
            was, is_ = f"{device.name} ({device.kind})", f"{gpu.name} ({kind})"
            yield f"device {device.index} is {was} in the plan, {is_} in the inventory"
        elif device.known_part != (gpu.part or 1.0):
            yield f"device {device.index} is {device.known_part:.3g} of a GPU in the plan, and not in the inventory"
    for gpu in listed.values():
        if gpu.mig != (gpu.parent is not None) or (gpu.mig and peak(gpu.name) is not None):
            yield f"{gpu.uuid} ({gpu.name}) is half a MIG instance: its name, its parent and the word for it disagree"


def _other_nodes(evidence: Evidence) -> Iterator[str]:
    manifest = evidence.manifest
    devices = {device.index: device for device in manifest.plan.devices}
    for name, record in evidence.named():
        if record.hostname != manifest.inventory.hostname:
            yield f"{name}: it was made on {record.hostname!r}, the run on {manifest.inventory.hostname!r}"
        if record.mnb.version != manifest.version:
            yield f"{name}: it was made with mnb {record.mnb.version}, the run with {manifest.version}"
        if any(devices.get(device.index) != device for device in record.mnb.devices):
            yield f"{name}: its devices differ from the plan"
    names = {session.hostname for session in evidence.ledger.sessions} - {manifest.inventory.hostname}
    yield from (f"a session was on {name!r}" for name in sorted(names))
    for event in evidence.ledger.events:
        if isinstance(event, Resumed):
            yield from (f"it was resumed with another {text}" for text in event.accepted)
