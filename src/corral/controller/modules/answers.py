"""What the controller's modules are asked for and what they answer: plain values for API and tests."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from corral.domain.module_records import PackageRecord


class InstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says besides the archive."""

    activate: bool = True
    """False: the package is held in INSTALLED until somebody activates it."""
    replace: bool = False
    """The same version with other content may take the place of the one that is there."""
    allow_downgrade: bool = False
    rollback: bool = True
    """False: a new version that does not become active stays, FAILED, and the old one is gone."""
    settings: dict[str, Any] | None = None
    """None: those of the package that is there, else the defaults of the manifest's schema."""


class InstallOutcome(enum.StrEnum):
    INSTALLED = "installed"
    UPGRADED = "upgraded"
    REPLACED = "replaced"
    DOWNGRADED = "downgraded"
    RESIGNED = "resigned"
    UNCHANGED = "unchanged"


class InstallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How an install ended. `story` tells its steps in order, for people."""

    record: PackageRecord
    outcome: InstallOutcome
    story: tuple[str, ...] = ()


class FrontendFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file beneath `frontend/` of a module's archive; `etag` is a hash of its content."""

    content: bytes
    content_type: str
    etag: str
