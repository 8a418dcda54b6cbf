"""What may be wrong with a PodGroup's minimums and subgroups, and what its admission makes of it. Pure.

Two sorts, as in KAI Scheduler v0.17: what makes the tree no tree, or two minimums contradict each other (`structure`, always
refused), and what is odd with a single minimum (`minimums`; refused or warned of). API: PodGroup v2alpha2.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from controller.scheduler.values import Value


class Finding(StrEnum):
    """What is wrong."""

    BOTH_MINIMUMS = "min_fields_mutually_exclusive"
    GRAPH = "subgroup_graph"
    LEAF_WITHOUT_MEMBERS = "leaf_without_min_member"
    LEAF_WITH_SUB_GROUPS = "leaf_with_min_sub_group"
    PARENT_WITH_MEMBERS = "parent_with_min_member"
    ABOVE_CHILDREN = "min_sub_group_above_child_count"


WARNED_ALWAYS = frozenset({Finding.ABOVE_CHILDREN})
WARNED_ON_UPDATE = WARNED_ALWAYS | {Finding.PARENT_WITH_MEMBERS}


class Problem(Value, frozen=True, kw_only=True):
    """One finding, and the sentence about it."""

    finding: Finding
    message: str


class Checked(Value, frozen=True, kw_only=True):
    """`structure` hides `minimums`: with a broken tree nobody can tell a leaf from a parent."""

    structure: Problem | None = None
    minimums: tuple[Problem, ...] = ()


class Admission(Value, frozen=True, kw_only=True):
    """Whether a PodGroup is taken; `refusal` says why not."""

    allowed: bool
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class _SubGroup(Value, frozen=True, kw_only=True):
    name: str
    parent: str | None
    min_member: int | None
    min_sub_group: int | None


def admit(spec: Mapping[str, Any], *, update: bool) -> Admission:
    """Say whether a PodGroup is taken. An update may leave what older versions wrote: it is only warned of."""
    checked = check_spec(spec)
    if checked.structure is not None:
        return Admission(allowed=False, refusal=checked.structure.message)
    mild = WARNED_ON_UPDATE if update else WARNED_ALWAYS
    refusals = [problem.message for problem in checked.minimums if problem.finding not in mild]
    return Admission(
        allowed=not refusals,
        warnings=tuple(problem.message for problem in checked.minimums if problem.finding in mild),
        refusal="; ".join(refusals),
    )


def check_spec(spec: Mapping[str, Any]) -> Checked:
    """Check a PodGroup's spec."""
    members, sub_groups = _whole(spec.get("minMember")), _whole(spec.get("minSubGroup"))
    if members is not None and sub_groups is not None:
        return Checked(structure=_both("the PodGroup", members, sub_groups))
    checked = check_sub_groups(spec)
    if checked.structure is not None or sub_groups is None:
        return checked
    roots = sum(1 for group in _sub_groups(spec) if group.parent is None)
    if sub_groups <= roots:
        return checked
    return Checked(minimums=(*checked.minimums, _above("the PodGroup", sub_groups, roots)))


def check_sub_groups(spec: Mapping[str, Any]) -> Checked:
    """Check the subgroups of a PodGroup's spec alone."""
    groups = _sub_groups(spec)
    broken = _graph_problem(groups)
    if broken:
        return Checked(structure=Problem(finding=Finding.GRAPH, message=broken))
    for group in groups:
        if group.min_member is not None and group.min_sub_group is not None:
            return Checked(structure=_both(f"subgroup {group.name}", group.min_member, group.min_sub_group))
    children: dict[str, int] = {}
    for group in groups:
        if group.parent is not None:
            children[group.parent] = children.get(group.parent, 0) + 1
    problems: list[Problem] = []
    for group in sorted(groups, key=lambda group: group.name):
        problems += _minimum_problems(group, children.get(group.name, 0))
    return Checked(minimums=tuple(problems))


def _minimum_problems(group: _SubGroup, children: int) -> list[Problem]:
    problems: list[Problem] = []
    if not children:
        if group.min_sub_group is not None:
            message = (
                f"subgroup {group.name} has minSubGroup {group.min_sub_group}, but no subgroups of its own"
            )
            problems.append(Problem(finding=Finding.LEAF_WITH_SUB_GROUPS, message=message))
        if group.min_member is None:
            message = f"subgroup {group.name} has no subgroups of its own, so it needs minMember"
            problems.append(Problem(finding=Finding.LEAF_WITHOUT_MEMBERS, message=message))
        return problems
    if group.min_member is not None:
        message = (
            f"subgroup {group.name} has subgroups of its own, so it needs minSubGroup instead of minMember"
        )
        problems.append(Problem(finding=Finding.PARENT_WITH_MEMBERS, message=message))
    if group.min_sub_group is not None and group.min_sub_group > children:
        problems.append(_above(f"subgroup {group.name}", group.min_sub_group, children))
    return problems


def _both(where: str, members: int, sub_groups: int) -> Problem:
    message = f"{where} has minMember {members} and minSubGroup {sub_groups}, but only one of them may be set"
    return Problem(finding=Finding.BOTH_MINIMUMS, message=message)


def _above(where: str, sub_groups: int, children: int) -> Problem:
    message = f"{where} has minSubGroup {sub_groups}, but only {children} direct subgroups"
    return Problem(finding=Finding.ABOVE_CHILDREN, message=message)


def _graph_problem(groups: list[_SubGroup]) -> str:
    parents: dict[str, str | None] = {}
    for group in groups:
        if group.name in parents:
            return f"the subgroup name {group.name} is given twice"
        parents[group.name] = group.parent
    for name, parent in parents.items():
        if parent is not None and parent not in parents:
            return f"subgroup {name} names the parent {parent}, which is none of the subgroups"
    cleared: set[str] = set()
    for name in parents:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in cleared:
            if at in path:
                return f"subgroup {at} is its own ancestor"
            path[at] = None
            at = parents[at]
        cleared |= path.keys()
    return ""


def _sub_groups(spec: Mapping[str, Any]) -> list[_SubGroup]:
    listed = spec.get("subGroups")
    found = []
    for raw in listed if isinstance(listed, list) else []:
        raw = raw if isinstance(raw, dict) else {}
        name, parent = raw.get("name"), raw.get("parent")
        found.append(
            _SubGroup(
                name=name if isinstance(name, str) else "",
                parent=parent if isinstance(parent, str) else None,
                min_member=_whole(raw.get("minMember")),
                min_sub_group=_whole(raw.get("minSubGroup")),
            )
        )
    return found


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
