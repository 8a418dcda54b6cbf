"""What a PodGroup may not say about its minimums, and when it is only warned of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.podgroup_checks import Finding, admit, check_spec, check_sub_groups

Raw = dict[str, Any]


def group(name: str, parent: str | None = None, **minimums: int) -> Raw:
    return {"name": name} | ({} if parent is None else {"parent": parent}) | minimums


CASES: dict[str, tuple[Raw, Finding | None, list[Finding]]] = {
    "a flat gang": ({"minMember": 8}, None, []),
    "nothing at all": ({}, None, []),
    "two leaves": (
        {"minSubGroup": 1, "subGroups": [group("a", minMember=2), group("b", minMember=2)]},
        None,
        [],
    ),
    "a tree": ({"subGroups": [group("a", minSubGroup=1), group("b", "a", minMember=2)]}, None, []),
    "a parent without a minimum": ({"subGroups": [group("a"), group("b", "a", minMember=2)]}, None, []),
    "both minimums": ({"minMember": 1, "minSubGroup": 1}, Finding.BOTH_MINIMUMS, []),
    "both minimums of a subgroup": (
        {"subGroups": [group("a", minMember=1, minSubGroup=1), group("b", "a", minMember=1)]},
        Finding.BOTH_MINIMUMS,
        [],
    ),
    "a name twice": ({"subGroups": [group("a", minMember=1), group("a", minMember=1)]}, Finding.GRAPH, []),
    "an unknown parent": ({"subGroups": [group("a", "z", minMember=1)]}, Finding.GRAPH, []),
    "its own parent": ({"subGroups": [group("a", "a", minMember=1)]}, Finding.GRAPH, []),
    "two circles": (
        {"subGroups": [group("a", "b"), group("b", "a"), group("c", "d"), group("d", "c")]},
        Finding.GRAPH,
        [],
    ),
    "a leaf of nobody": ({"subGroups": [group("a")]}, None, [Finding.LEAF_WITHOUT_MEMBERS]),
    "a leaf that counts subgroups": (
        {"subGroups": [group("a", minSubGroup=0)]},
        None,
        [Finding.LEAF_WITH_SUB_GROUPS, Finding.LEAF_WITHOUT_MEMBERS],
    ),
    "a parent that counts pods": (
        {"subGroups": [group("a", minMember=3), group("b", "a", minMember=2)]},
        None,
        [Finding.PARENT_WITH_MEMBERS],
    ),
    "more than it has": (
        {"subGroups": [group("a", minSubGroup=2), group("b", "a", minMember=2)]},
        None,
        [Finding.ABOVE_CHILDREN],
    ),
    "more than the group has": (
        {"minSubGroup": 3, "subGroups": [group("a", minSubGroup=1), group("b", "a", minMember=2)]},
        None,
        [Finding.ABOVE_CHILDREN],
    ),
}


@pytest.mark.parametrize(("spec", "structure", "minimums"), CASES.values(), ids=CASES)
def test_a_spec(spec: Raw, structure: Finding | None, minimums: list[Finding]) -> None:
    """What is wrong with it, by sort; each with a sentence."""
    checked = check_spec(spec)
    assert (checked.structure and checked.structure.finding) == structure
    assert [problem.finding for problem in checked.minimums] == minimums
    assert all(problem.message for problem in checked.minimums)


ADMISSIONS: dict[str, tuple[str, bool, bool, int]] = {
    "a new parent that counts pods is refused": ("a parent that counts pods", False, False, 0),
    "an old one is warned of": ("a parent that counts pods", True, True, 1),
    "a minimum that is too high is warned of": ("more than it has", False, True, 1),
    "a leaf of nobody is refused": ("a leaf of nobody", True, False, 0),
    "a circle is refused": ("two circles", True, False, 0),
    "a tree is taken": ("a tree", False, True, 0),
}


@pytest.mark.parametrize(("case", "update", "allowed", "warnings"), ADMISSIONS.values(), ids=ADMISSIONS)
def test_admission(case: str, update: bool, allowed: bool, warnings: int) -> None:
    """Taken, warned of or refused; a refusal says why."""
    admission = admit(CASES[case][0], update=update)
    assert (admission.allowed, len(admission.warnings)) == (allowed, warnings)
    assert bool(admission.refusal) is not allowed


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from("abc"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "parent", "minMember", "minSubGroup", "subGroups"]), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["minMember", "minSubGroup", "subGroups"]), ODD))
def test_odd_specs_are_checked_too(spec: Raw) -> None:
    """Nothing is raised, and what is refused on an update is refused on creation."""
    check_sub_groups(spec)
    assert admit(spec, update=True).allowed or not admit(spec, update=False).allowed
