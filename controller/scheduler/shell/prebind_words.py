"""What preparing a bind comes to: values shared by claims and volumes. Pure."""

from typing import Final

import msgspec

TRIES: Final = 3
"""How often a conflict is answered by reading again and deciding anew."""


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceClaim was reserved for a pod. `pod_uid` "" = for nobody, only its devices are to be let go."""

    namespace: str
    name: str
    uid: str
    pod_uid: str


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """A volume for a claim was asked for on a node."""

    namespace: str
    name: str
    uid: str
    node: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that was there was reserved for a claim."""

    volume: str
    namespace: str
    name: str
    uid: str


Undo = Reserved | Selected | Taken


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`why` "" = done; else why not, and with `waits` it may yet come by waiting. `undo`: what was written on the way."""

    why: str = ""
    waits: bool = False
    undo: tuple[Undo, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `wait_s`: how long a pod may wait for what it needs on the node that was chosen. `echo_s`: how long the watch
    may take to show what was written. `tidy_every_s`: how often what is left of earlier leaders is looked for.
    """

    wait_s: float = 120.0
    echo_s: float = 2.0
    tidy_every_s: float = 10.0
