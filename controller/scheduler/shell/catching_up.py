"""A new leader reads all pods once, before it plans: what the last one bound need not have come in by the watch. Shell.

A watch that died in silence counts as fresh for up to two minutes. A follower may live with that; whoever starts to lead on
such a copy gives the last leader's cards away a second time.
"""

from typing import Final

import msgspec
import structlog

from kube import paths
from kube.api import Api, ApiError
from kube.store import Store
from kube.types import Pod
from kube.watch import Page

log = structlog.get_logger(__name__)

_PAGE: Final = "500"


class CatchingUp:
    """The loop's thread asks, once it leads, until it is done."""

    def __init__(self, api: Api, pods: Store[Pod]) -> None:
        self._api = api
        self._pods = pods
        self._is_done = False
        self._is_failing = False

    def why_not(self) -> str | None:
        """Read what is still to be read; say why that failed, None = all is in."""
        if not self._is_done:
            try:
                self._read()
            except (ApiError, msgspec.MsgspecError) as error:
                if not self._is_failing:
                    log.warning("leader.not_caught_up", error=str(error))
                self._is_failing = True
                return f"the pods could not be read since we lead: {error}"
            self._is_done = True
        return None

    def _read(self) -> None:
        query = {"limit": _PAGE}
        while True:
            page = msgspec.json.decode(self._api.get(paths.pods(), query), type=Page)
            for item in page.items or ():
                try:
                    self._pods.offer(msgspec.json.decode(item, type=Pod))
                except msgspec.MsgspecError:  # the watch names it
                    continue
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_
