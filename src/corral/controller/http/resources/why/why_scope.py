"""Answers to why as a caller with a scope sees them: without what is about groups, instances and nodes outside of it.

Names of nodes stay where they explain a placement: who may see an instance sees where it is, and where it could not be.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.resources.decisions import covers_decision
from corral.controller.http.resources.why.why_answer import ChainShape, NowShape, WhyParts, WhyShape
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import DECISIONS_PREFIX
from corral.domain.access import Access
from corral.domain.permissions import Permission

WhyHandler = Callable[[WhyParts, ApiCall[None, NoQuery]], Awaitable[WhyShape]]

_PERMISSION = Permission.DECISIONS_READ
_OUTSIDE = ChainShape(
    kind="truncated",
    id="",
    subject="",
    rule="",
    reason="something outside of the scope of the caller, or that is gone",
    at=None,
)


def within_scope(handler: WhyHandler) -> WhyHandler:
    """A handler whose answers hold what is within the scope of their caller."""

    @functools.wraps(handler)
    async def answer(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
        shape, access = await handler(parts, call), call.caller.access
        return shape if access.allows_everywhere(_PERMISSION) else _narrowed(parts.state, access, shape)

    return answer


def _narrowed(state: ClusterState, access: Access, shape: WhyShape) -> WhyShape:
    journal = DECISIONS_PREFIX + shape.subject
    return msgspec.structs.replace(
        shape,
        decisions=[
            each
            for each in shape.decisions
            if covers_decision(state, access, journal, each.subject, each.node)
        ],
        now=[each for each in shape.now if _covers(state, access, each)],
        chain=_cut_outside([each if _is_seen(state, access, each) else _OUTSIDE for each in shape.chain]),
    )


def _covers(state: ClusterState, access: Access, fact: NowShape) -> bool:
    kind, _, id = fact.subject.partition("/")
    match kind:
        case "group":
            own = access.allows_on_group(_PERMISSION, id)
            return own or access.allows_on_instance(_PERMISSION, id, fact.node)
        case "instance":
            stored = state.instances.find(id)
            if stored is None:
                return True  # of the group that is asked about: it would be started
            return access.allows_on_instance(_PERMISSION, stored.record.group, stored.record.node)
        case _:
            return True


def _is_seen(state: ClusterState, access: Access, step: ChainShape) -> bool:
    """Whether the subject of a step is within the scope; one that is gone is not."""
    if step.kind == "truncated":
        return True
    stored = state.instances.find(step.subject)
    if stored is not None:
        return access.allows_on_instance(_PERMISSION, stored.record.group, stored.record.node)
    if state.groups.find(step.subject) is not None:
        return access.allows_on_group(_PERMISSION, step.subject)
    return access.allows_on_node(_PERMISSION, step.subject)


def _cut_outside(steps: list[ChainShape]) -> list[ChainShape]:
    """Steps, with one mark in place of several in a row that are outside."""
    return [each for before, each in zip([None, *steps], steps, strict=False) if each is not before]
