"""Group documents of callers with a scope: what they may not name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.pipeline.scoping import (
    refuse_document_outside,
    refuse_heirs_outside,
    refuse_references_outside,
)
from corral.controller.http.pipeline.template_scopes import refuse_templates_outside
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.document_faults import check_size
from corral.domain.groups.group import GroupSpec
from corral.domain.permissions import Permission


def refuse_specs_outside(state: ClusterState, call: ApiCall[Any, Any], specs: Iterable[GroupSpec]) -> None:
    """FORBIDDEN for documents that a caller with a scope may not write: of groups outside of it, those that inherit
    included, of instances that could be placed on nodes outside of it, and of templates of others."""
    access = call.caller.access
    if not access.allows_everywhere(Permission.GROUPS_MANAGE):
        own = call.path.get("name")
        for spec in specs:
            if own is not None and spec.name != own:
                refuse_heirs_outside(access, spec)
            refuse_document_outside(access, spec)
            stored = state.groups.find(spec.name)
            before = stored.record.spec if stored is not None else None
            refuse_templates_outside(access, state, msgspec.to_builtins(spec), before)


def refuse_references(
    state: ClusterState, call: ApiCall[Any, Any], document: dict[str, Any], before: GroupSpec | None = None
) -> None:
    """FORBIDDEN or TEMPLATE_NOT_FOUND for a document with which a caller with a scope names groups or templates outside of it.
    It comes before all other checks of the document but that of its size, or their refusals would tell whether these exist."""
    access = call.caller.access
    if not access.allows_everywhere(Permission.GROUPS_MANAGE):
        check_size(document)
        refuse_references_outside(access, document, before)
        refuse_templates_outside(access, state, document, before)
