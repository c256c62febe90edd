"""What groups in files are compared with: nodes, templates and programs of the cluster, if one can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from corral.cli.api.client import Client, segment
from corral.cli.api.session import ApiSession
from corral.cli.apply import GROUPS, send_set
from corral.cli.catalog import CATALOG
from corral.cli.failure import CommandFailure, CommandRefused
from corral.cli.node import NODES
from corral.cli.template_files import TEMPLATES
from corral.domain.groups.document_sets import name_of
from corral.domain.groups.inheritance import Document, parent_of
from corral.system.document_sets import DocumentSet


class ClusterView(NamedTuple):
    problem: str = ""
    """Why it could not be asked; empty: it was."""
    nodes: tuple[Mapping[str, Any], ...] = ()
    templates: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    """`PLATFORM/VERSION`."""
    parents: Mapping[str, Document] = {}
    """The documents of groups that those of the files inherit from."""
    refused: tuple[Mapping[str, Any], ...] = ()
    """What is wrong with the files, as `diff` has it."""


def view_cluster(client: Client, found: DocumentSet) -> ClusterView:
    """Whatever fails is the view's `problem`."""
    try:
        return ClusterView(
            nodes=tuple(client.pages(NODES)),
            templates=frozenset(str(each["name"]) for each in client.pages(TEMPLATES)),
            programs=frozenset(f"{each['platform']}/{each['version']}" for each in client.pages(CATALOG)),
            parents=_parents(client, found),
            refused=_refused(client, found),
        )
    except CommandFailure as failure:
        return ClusterView(problem=failure.message)


def _parents(client: Client, found: DocumentSet) -> dict[str, Document]:
    known = {name_of(each.body): each.body for each in found.documents if isinstance(each.body, dict)}
    parents: dict[str, Document] = {}
    missing = {parent_of(each) for each in known.values()}
    while names := missing - known.keys() - {""}:
        for name in names:
            try:
                known[name] = parents[name] = client.get(f"{GROUPS}/{segment(name)}/document")
            except CommandRefused:  # it does not exist, which is a fault of the document
                known[name] = {}
        missing = {parent_of(known[name]) for name in names}
    return parents


def _refused(client: Client, found: DocumentSet) -> tuple[Mapping[str, Any], ...]:
    session, options = ApiSession(client=client, output="json"), {"dry_run": True, "force": True}
    try:
        send_set(session, DocumentSet(found.documents, []), options)
    except CommandRefused as refusal:
        if not refusal.details:
            raise
        return tuple(refusal.details) if refusal.code != "CONFIRMATION_REQUIRED" else ()
    return ()
