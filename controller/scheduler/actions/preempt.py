"""Let jobs of higher priority take the place of others in their own queue (kai.md 2.4). Pure but for the ledger."""

from controller.scheduler.search.kinds import Preempt
from controller.scheduler.search.rounds import run as run_rounds
from controller.scheduler.session import Session


def run(session: Session) -> None:
    """Try every job that waits; what is found stays in the ledger."""
    run_rounds(session, Preempt(session))
