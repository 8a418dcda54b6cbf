"""Which sources can be read, and how much of each is known to be lost. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from checks.observation import Observation, RecordsLost, SourceFailed, SourceRead
from kube.nodehealth import SourceState

# A damaged number in a record may look like a gap of any size; the schema's int64 must bear the sum.
MOST_LOST = 2**53


def note(
    sources: Mapping[str, SourceState], name: str, *, readable: bool, error: str = ""
) -> dict[str, SourceState]:
    """Give the sources with one of them as it was just found."""
    held = sources.get(name, SourceState(name=name, readable=readable))
    return {**sources, name: msgspec.structs.replace(held, readable=readable, error=error)}


def noted(
    sources: Mapping[str, SourceState], observations: Iterable[Observation]
) -> Mapping[str, SourceState]:
    """Give the sources as these observations leave them; one that has records is followed by a SourceRead."""
    for observation in observations:
        match observation:
            case SourceRead(source=name):
                sources = note(sources, name, readable=True)
            case SourceFailed(source=name, error=error):
                sources = note(sources, name, readable=False, error=error)
            case RecordsLost(source=name, count=count):
                held = sources.get(name, SourceState(name=name, readable=True))
                lost = min(held.lost + count, MOST_LOST)
                sources = {**sources, name: msgspec.structs.replace(held, lost=lost)}
            case _:
                pass
    return sources
