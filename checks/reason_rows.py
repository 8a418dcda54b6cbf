"""Short ways to write the rows of the public table of reasons: a fault, a warning, a reason of Unknown."""

from checks.finding import Action, Effect, Reason, Severity, Urgency


def fault(name: str, effect: Effect, urgency: Urgency, action: Action, summary: str, runbook: str) -> Reason:
    """Give a reason that turns its condition True."""
    return Reason(
        name=name,
        severity=Severity.FAULT,
        effect=effect,
        urgency=urgency,
        action=action,
        summary=summary,
        runbook=runbook,
    )


def warning(name: str, summary: str, runbook: str) -> Reason:
    """Give a reason that is shown and takes nothing away; a reason of an Unknown condition is one, too."""
    return Reason(
        name=name,
        severity=Severity.WARNING,
        effect=Effect.NONE,
        urgency=Urgency.PERSON,
        action=Action.NONE,
        summary=summary,
        runbook=runbook,
    )
