"""Which sources are looked at every so often, by the configuration; each reader lives in `agent/host/`."""

from collections.abc import Iterator
from pathlib import Path

from agent.config import Config
from agent.host.children import Children
from agent.host.host_facts import HostReader
from agent.host.infiniband import InfinibandReader
from agent.host.mounts import LocalFileSystems, Look, SharedMounts, look_of
from agent.host.nvme import MOST, Disks, Nvmes, smart_of
from agent.host.pci import PciReader
from agent.probes import Probe
from agent.wanted_mount import wanted_mount
from checks.host_reading import HOST
from checks.infiniband_reading import INFINIBAND
from checks.pci_reading import PCI
from checks.storage_reading import DISKS, MOUNTS
from kube.clock import SYSTEM


def probes_of(config: Config) -> tuple[Probe, ...]:
    """Give the probes that are switched on."""
    sys_root, proc_root = config.roots.sys, config.roots.proc
    probes: list[Probe] = []
    if config.pci.enabled:
        probes.append(
            Probe(
                source=PCI,
                read=PciReader(sys_root, proc_root, SYSTEM).read,
                period_s=config.pci.period.total_seconds(),
                deadline_s=config.pci.deadline.total_seconds(),
            )
        )
    if config.infiniband.enabled:
        probes.append(
            Probe(
                source=INFINIBAND,
                read=InfinibandReader(sys_root, proc_root, config.infiniband, SYSTEM).read,
                period_s=config.infiniband.period.total_seconds(),
                deadline_s=config.infiniband.deadline.total_seconds(),
            )
        )
    return (*probes, *_storage(config), *_host(config))


def _storage(config: Config) -> Iterator[Probe]:
    section, proc_root = config.storage, config.roots.proc
    deadline_s = section.deadline.total_seconds()
    wanted = [wanted_mount(text) for text in section.mounts]
    if section.enabled and wanted:
        children = Children(deadline_s)
        write = f".nodemend-{config.node_name.replace('/', '_') or 'node'}" if section.write_probe else ""
        look = look_of(Look(entry=section.read_entry, write=write), proc_root, deadline_s)
        yield Probe(
            source=MOUNTS,
            read=SharedMounts(proc_root, wanted, children, look, SYSTEM.now).read,
            period_s=section.mounts_period.total_seconds(),
            deadline_s=children.longest_s(len(wanted)) + 1,
        )
    if section.enabled:
        local, smart = Children(deadline_s), Children(deadline_s)
        file_systems = LocalFileSystems(
            proc_root, section.local, local, look_of(Look(), proc_root, deadline_s)
        )
        asked = smart_of(Path("/dev"), deadline_s)
        nvmes = Nvmes(config.roots.sys, smart, asked, section.smart_period.total_seconds())
        yield Probe(
            source=DISKS,
            read=Disks(config.roots.sys, nvmes, file_systems, SYSTEM.now).read,
            period_s=section.disks_period.total_seconds(),
            deadline_s=local.longest_s(len(section.local)) + smart.longest_s(MOST) + 1,
        )


def _host(config: Config) -> Iterator[Probe]:
    if config.host.enabled:
        roots, kubelet = config.roots, config.kubelet.pod_resources
        yield Probe(
            source=HOST,
            read=HostReader(roots.proc, roots.sys, kubelet, SYSTEM.now).read,
            period_s=config.host.period.total_seconds(),
            deadline_s=config.host.deadline.total_seconds(),
        )
