"""Which sources are looked at every so often, by the configuration; each reader lives in `agent/host/`."""

from agent.config import Config
from agent.probes import Probe


def probes_of(config: Config) -> tuple[Probe, ...]:
    """Give the probes that are switched on."""
    del config
    return ()
