"""Take back from queues above their share what others are entitled to (kai.md 2.4). Pure but for the ledger."""

from controller.scheduler.search.kinds import Reclaim
from controller.scheduler.search.rounds import run as run_rounds
from controller.scheduler.session import Session


def run(session: Session) -> None:
    """Try every job that waits; what is found stays in the ledger."""
    run_rounds(session, Reclaim(session))
