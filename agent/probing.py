"""Which sources are looked at every so often, by the configuration; each reader lives in `agent/host/`."""

from functools import partial

from agent.config import Config
from agent.host.pci import read_pci
from agent.probes import Probe
from checks.pci_reading import PCI
from kube.clock import SYSTEM


def probes_of(config: Config) -> tuple[Probe, ...]:
    """Give the probes that are switched on."""
    sys_root, proc_root = config.roots.sys, config.roots.proc
    probes: list[Probe] = []
    if config.pci.enabled:
        probes.append(
            Probe(
                source=PCI,
                read=partial(read_pci, sys_root, proc_root, SYSTEM),
                period_s=config.pci.period.total_seconds(),
                deadline_s=config.pci.deadline.total_seconds(),
            )
        )
    return tuple(probes)
