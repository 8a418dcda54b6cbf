"""One write of the reporter, as data. Pure."""

from enum import StrEnum
from typing import Any

import msgspec

from kube.api import PatchType


class Kind(StrEnum):
    """What is written; each has rights, and so refusals, of its own."""

    ANNOTATIONS = "podgroups"
    GROUP = "podgroups/status"
    POD = "pods/status"
    QUEUE = "queues/status"
    EVENT = "events"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """`key` names the object; `patch_type` None = it is created."""

    kind: Kind
    key: str
    path: str
    body: dict[str, Any]
    patch_type: PatchType | None = PatchType.MERGE
