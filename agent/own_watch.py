"""Watching our own objects by name, as kubelet watches its Node.

GPU Operator says by the Node's labels that it needs the driver, and only for seconds before it takes it; the controller
asks through NodeHealth's spec. A watch of one object by its name costs the server an idle connection.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from kube.api import Api
from kube.clock import Clock
from kube.nodehealth import NodeHealth
from kube.store import Change, Store
from kube.types import Node
from kube.watch import Reflector

Own = TypeVar("Own", Node, NodeHealth)


def own_watch(
    api: Api,
    path: str,
    kind: type[Own],
    name: str,
    changed: Callable[[Change, Own | None], None],
    clock: Clock,
    stop: threading.Event,
) -> threading.Thread:
    """Make the thread that tells `changed` of each event of the object `name` until `stop` is set.

    SYNCED is told where a list was without the object: no event tells of what was deleted while no watch stood.
    """
    store: Store[Own] = Store()

    def tell(change: Change, seen: Own | None) -> None:
        if change is not Change.SYNCED or store.get(name) is None:
            changed(change, seen)

    store.subscribe(tell)
    selector = f"metadata.name={name}"
    reflector = Reflector(api, path, kind, store, clock=clock, stop=stop, field_selector=selector)
    return threading.Thread(target=reflector.run, name=f"watch-{kind.__name__}", daemon=True)
