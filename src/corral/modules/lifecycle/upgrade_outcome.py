"""How an upgrade is told, to whoever asked for it and to the author of the new version."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from corral.domain.module_records import PackageRecord
from corral.errors import Code, Rejected
from corral.modules.lifecycle.module_failure import ModuleFailure

_PLACE: Final = re.compile(r'^ *File "([^"]+)", line ([0-9]+)', re.MULTILINE)


class UpgradeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade came to, told in sentences."""

    record: PackageRecord
    lines: tuple[str, ...]


class UpgradeFailed(Rejected):
    """The new version did not become ACTIVE. `record` is what is stored now, `lines` tell how it came."""

    def __init__(
        self, record: PackageRecord, version: str, trouble: ModuleFailure, lines: tuple[str, ...]
    ) -> None:
        super().__init__(
            Code.MODULE_UPGRADE_FAILED,
            f"module '{record.id}' was not upgraded to {version}: {trouble.reason}. "
            + " ".join(lines).rstrip("."),
            hint=f"{record.id} {record.version} is {record.phase.name}; fix the new version and install it again",
        )
        self.record = record
        self.reason = trouble.reason
        self.blameless = trouble.blameless
        """The new version could not help it: it may come up when it is tried again."""
        self.trouble = failure_text(trouble)
        """The reason, what was said, and where, in one line."""
        self.lines = lines


def failure_text(trouble: ModuleFailure) -> str:
    """The reason, what was said, and where: after a roll-back nothing else tells an author."""
    said = f"{trouble.reason}: {trouble.message}" if trouble.message else trouble.reason
    places = _PLACE.findall(trouble.traceback)
    if not places:
        return said
    path, line = places[-1]
    return f"{said}, at {'/'.join(path.split('/')[-2:])}:{line}"


def standing_text(record: PackageRecord) -> str:
    """Its phase, with the reason for it where there is one."""
    why = f" ({record.reason})" if record.reason else ""
    return f"{record.phase.name}{why}"
