"""Changes of the catalog as pure functions: they read the state and return the steps of a transaction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.controller.instances.plans import plans_in_use
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CATALOG
from corral.controller.state.ledger import Step
from corral.domain.events import Draft, EventType
from corral.domain.file_paths import check_path
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.group import ArtifactSpec, GroupSpec
from corral.domain.spec import invalid
from corral.domain.urls import check_url, shown_url
from corral.errors import Code, Rejected, short_list

_PART: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,61}[A-Za-z0-9])?")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LISTED: Final = 5


def put_entry(state: ClusterState, record: CatalogRecord) -> tuple[Step, ...]:
    """Store an entry in place of an earlier one; its `created_at` is kept. Empty when nothing changes.

    Groups use it from their next starts on: running instances keep what they were started with.
    """
    _check(record)
    stored = state.catalog.find(record.id)
    if stored is not None:
        record = msgspec.structs.replace(record, created_at=stored.record.created_at)
        if msgspec.structs.replace(record, updated_at=stored.record.updated_at) == stored.record:
            return ()
    return (
        CATALOG.put(record.id, record, expect=state.catalog.revision(record.id)),
        Draft(
            type=EventType.CATALOG_UPDATED,
            subject=record.id,
            data={"file": record.file, "sha256": record.sha256, "url": shown_url(record.url)},
        ),
    )


def remove_entry(state: ClusterState, id: str) -> tuple[Step, ...]:
    """Remove an entry. NOT_FOUND; ARTIFACT_IN_USE names its users."""
    stored = state.catalog.require(id)
    users = [f"group '{name}'" for name in users_of(state, id)]
    users += [f"a live instance of '{name}'" for name in _running_with(state, stored.record)]
    if users:
        raise Rejected(
            Code.ARTIFACT_IN_USE,
            f"catalog entry '{id}' is used by {short_list(users, _LISTED)}",
            hint="give them another artifact, or delete them first",
        )
    return (
        CATALOG.delete(id, expect=stored.revision),
        Draft(type=EventType.CATALOG_REMOVED, subject=id, data={"sha256": stored.record.sha256}),
    )


def users_of(state: ClusterState, id: str) -> list[str]:
    """The groups that name an entry."""
    return [
        name
        for name, stored in state.groups.items()
        if any(f"{each.platform}/{each.version}" == id for each in _artifacts(stored.record.spec))
    ]


def _artifacts(spec: GroupSpec) -> Iterable[ArtifactSpec]:
    if spec.artifact is not None:
        yield spec.artifact
    for extension in spec.extensions:
        if extension.artifact is not None:
            yield extension.artifact


def _running_with(state: ClusterState, record: CatalogRecord) -> list[str]:
    """The groups of live instances whose plan was made with this entry."""
    groups: set[str] = set()
    for plan in plans_in_use(state):
        artifacts = [plan.artifact, *(each.artifact for each in plan.extensions)]
        if any(a and (a.platform, a.version) == (record.platform, record.version) for a in artifacts):
            groups.add(plan.group)
    return sorted(groups)


def _check(record: CatalogRecord) -> None:
    for field, value in (("platform", record.platform), ("version", record.version)):
        if _PART.fullmatch(value) is None or ".." in value:
            raise invalid(
                field, f"{value[:80]!r} cannot be used", "use 1 to 63 of A-Z, a-z, 0-9, '.', '_', '+' and '-'"
            )
    if not record.file:
        raise Rejected(Code.MISSING_FIELD, "the entry has no file name", field="file")
    check_path(record.file, field="file")
    if "/" in record.file:
        raise invalid("file", "it is a path", "use a file name; groups say where the file goes")
    if _DIGEST.fullmatch(record.sha256) is None:
        raise invalid("sha256", "it is not a SHA-256 in lower-case hex", "compute it with sha256sum")
    if record.url:
        check_url(record.url, field="url")
