"""Selectors as Kubernetes writes them, as the values that the core compares. Pure."""

from collections.abc import Sequence
from typing import Final

from controller.scheduler.requests import Expression, NodeTerm
from kube.placement import LabelSelector, NodeSelectorTerm, SelectorRequirement

NOBODY: Final = (Expression(key="", operator="In"),)
"""A selector that no pod matches: no value is among none."""


def node_terms_of(terms: Sequence[NodeSelectorTerm]) -> tuple[NodeTerm, ...]:
    return tuple(map(node_term_of, terms))


def node_term_of(term: NodeSelectorTerm) -> NodeTerm:
    """An empty term matches no node, as in Kubernetes."""
    if not term.match_expressions and not term.match_fields:
        return NodeTerm(expressions=NOBODY)
    return NodeTerm(expressions=_expressions(term.match_expressions), fields=_expressions(term.match_fields))


def selector_of(selector: LabelSelector | None) -> tuple[Expression, ...]:
    """Give a label selector as expressions: none = nobody, empty = everybody."""
    if selector is None:
        return NOBODY
    return (
        *(
            Expression(key=key, operator="In", values=(value,))
            for key, value in sorted(selector.match_labels.items())
        ),
        *_expressions(selector.match_expressions),
    )


def _expressions(requirements: Sequence[SelectorRequirement]) -> tuple[Expression, ...]:
    return tuple(
        Expression(key=one.key, operator=one.operator, values=tuple(sorted(one.values)))
        for one in requirements
    )
