"""What a reset took away and no Remediation accounts for any more, since somebody deleted it half-way. Pure.

The story is gone, but what it left is plain to see: labels that carry our word, and a NodeHealth that asks its agent for the
driver in the name of a Job of ours. Both are put back, once no such Job runs, unless a new incident wants them so by now. A
cordon stays: whether a node without its story is well, a person has to say.
"""

import re

import msgspec

from controller.attempts import is_complete, job_failure
from controller.gpu_clients import left_off
from controller.gpu_reset import RESET_GPU
from controller.phases_reset import is_quiet_wanted
from controller.repairs import NODE_UID_ANNOTATION
from controller.steps import StartClients, Step, WriteSpec
from controller.survey import Survey
from kube.nodehealth import NodeHealth
from kube.types import Node

_JOB = re.compile(rf"{RESET_GPU}-(.+)-\d+")


def put_back_orphans(looked: Survey) -> list[Step]:
    """Give the steps that put back what nobody else will."""
    steps: list[Step] = []
    for name, node in looked.fleet.nodes.items():
        if (labels := left_off(node)) and name not in looked.owners and not _is_accounted_for(looked, node):
            steps.append(
                StartClients(
                    node=name,
                    node_uid=node.metadata.uid,
                    resource_version=node.metadata.resource_version,
                    incident="",
                    labels=labels,
                )
            )
    for name, health in looked.fleet.healths.items():
        if _is_orphaned(looked, health) and not is_quiet_wanted(looked, name):
            spec = msgspec.structs.replace(health.spec, release=None)
            steps.append(WriteSpec(node=name, spec=spec))
    return steps


def _is_accounted_for(looked: Survey, node: Node) -> bool:
    name = node.metadata.name
    if is_quiet_wanted(looked, name):
        return True
    if any(
        one.status.stopped is not None and one.spec.node_uid == node.metadata.uid
        for one in looked.remediations.get(name, ())
    ):
        return True
    return any(
        job.metadata.annotations.get(NODE_UID_ANNOTATION) == node.metadata.uid
        and job.metadata.name.startswith(RESET_GPU)
        and not is_complete(job)
        and not job_failure(job)
        for job in looked.fleet.jobs.values()
    )


def _is_orphaned(looked: Survey, health: NodeHealth) -> bool:
    """Tell a word to let go that a deleted incident left behind; a person's own word has another form."""
    if health.spec.release is None:
        return False
    found = _JOB.fullmatch(health.spec.release.by)
    return found is not None and found[1] not in looked.fleet.remediations
