"""Revisions of a group: its document with the contents that it named, as instances are started with them.

A start looks its names up anew (template versions, programs of the catalog, files of modules). A revision keeps what was
found, so that a later start can be made with the same; only fields that a running instance cannot take over count there,
all others are those of the present document.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

import msgspec

from corral.domain.groups.field_effects import FIELDS_RESTART
from corral.domain.groups.group import Category, ConfigFormat, GroupSpec
from corral.domain.groups.plans import PlanArtifact, PlanExtension, PlanTemplate
from corral.domain.records import Record

REVISIONS_KEPT: Final = 10
"""The newest revisions of a group that are kept, beside those in use."""
REVISION_BYTES: Final = 64 * 1024
"""The most bytes of a stored revision."""
LEFT_OUT: Final = ("maintenance", "nodes", "schedules", "static_names")
"""The fields that may be long and that every start takes from the present document: a revision is kept without them."""
_DEFAULTS: Final = GroupSpec(name="")


class RevisionPins(Record, frozen=True, kw_only=True):
    """The contents of a revision."""

    templates: tuple[PlanTemplate, ...] = ()
    """Every template that may be laid, also where one of several is drawn."""
    artifact: PlanArtifact | None = None
    extensions: tuple[PlanExtension, ...] = ()
    category: Category = Category.NONE
    config_format: ConfigFormat = ConfigFormat.NONE
    """Both as the document or the program of the catalog says."""


class RevisionRecord(Record, frozen=True, kw_only=True):
    """One revision; numbers grow by one and are never used again while the group exists."""

    group: str
    number: int
    spec: GroupSpec
    """Without `LEFT_OUT`; revisions from before have those fields, too."""
    pins: RevisionPins = RevisionPins()
    basis: str
    """Of every start by it; see `drift`."""
    created_at: dt.datetime
    by: str
    trigger: str
    """`start`, `manual`, `restart`, or what a deployment made by itself."""
    restart: int = 0
    """The number of the last revision that was made to restart everything, which is part of the basis; 0: none was."""


def revised_spec(spec: GroupSpec) -> GroupSpec:
    """The document of a group as its revision has it."""
    return msgspec.structs.replace(spec, **{name: getattr(_DEFAULTS, name) for name in LEFT_OUT})


def revision_id(group: str, number: int) -> str:
    """Under which a revision is stored."""
    return f"{group}/{number}"


def restarted_basis(basis: str, restart: int) -> str:
    """A basis after a restart of everything by that revision: it differs from the one before though nothing else does."""
    return hashlib.sha256(f"{basis} restart {restart}".encode()).hexdigest() if restart and basis else basis


def started_spec(present: GroupSpec, revision: RevisionRecord) -> GroupSpec:
    """The document that a start by a revision goes by: what a running instance cannot take over is the revision's."""
    fields = {name: getattr(revision.spec, name) for name in FIELDS_RESTART}
    stop = revision.spec.disconnect.stop_after_seconds
    disconnect = msgspec.structs.replace(present.disconnect, stop_after_seconds=stop)
    return msgspec.structs.replace(present, disconnect=disconnect, **fields)
