"""Move jobs together so that one that waits finds room in one piece (kai.md 2.4). Pure but for the ledger."""

from controller.scheduler.search.kinds import Consolidate
from controller.scheduler.search.rounds import run as run_rounds
from controller.scheduler.session import Session


def run(session: Session) -> None:
    """Try every job that waits; what is found stays in the ledger."""
    run_rounds(session, Consolidate(session))
