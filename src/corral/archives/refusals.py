"""Refusals of an archive or one of its entries: with the entry's name where there is one, always with a hint."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.archives.limits import RATIO_MAX, ArchiveLimits
from corral.errors import Code, Rejected

_SHOWN: Final = 160


class ArchiveRefusals(msgspec.Struct, frozen=True, kw_only=True):
    """The wording for archives of one kind: their name, and what their sender can do. The codes are the same
    for all: ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED."""

    unreadable: str
    entry: str
    """With `{name}` and `{why}`."""
    many_entries: str
    long_directory: str
    many_bytes: str
    far_unpacked: str
    """With `{times}`."""
    unknown_compression: str
    damaged_hint: str
    entry_hint: str
    large_hint: str
    ratio_hint: str
    encrypted_hint: str
    compression_hint: str
    hard_link_hint: str

    def damaged(self, why: str) -> Rejected:
        return Rejected(Code.ARCHIVE_INVALID, f"{self.unreadable}: {why}", hint=self.damaged_hint)

    def entry_damaged(self, name: str, why: str) -> Rejected:
        return self.damaged(f"its entry {shown(name)}: {why}")

    def entry_refused(self, name: str, why: str, *, hint: str = "") -> Rejected:
        message = self.entry.format(name=shown(name), why=why)
        return Rejected(Code.PATH_REFUSED, message, hint=hint or self.entry_hint)

    def too_large(self, what: str, limit: str) -> Rejected:
        return Rejected(Code.ARCHIVE_TOO_LARGE, f"{what}; the limit is {limit}", hint=self.large_hint)

    def too_many_entries(self, limits: ArchiveLimits) -> Rejected:
        return self.too_large(self.many_entries, limits.entries_shown or f"{limits.max_entries} entries")

    def too_many_bytes(self, limits: ArchiveLimits) -> Rejected:
        return self.too_large(self.many_bytes, f"{limits.max_bytes} bytes")

    def unpacks_too_far(self, *, unpacked: int, packed: int) -> Rejected:
        message = self.far_unpacked.format(times=unpacked // max(packed, 1))
        return Rejected(Code.ARCHIVE_TOO_LARGE, message, hint=self.ratio_hint)


def shown(name: str) -> str:
    """An entry's name for a message: on one line, and not longer than one."""
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")


_TEMPLATE_ENTRY: Final = "nothing was stored; pack it without that entry"
_MODULE_ENTRY: Final = (
    "nothing was stored; build it with `corral module build`, or pack it without that entry"
)
_MODULE_LARGE: Final = "nothing was stored; make it smaller, or raise modules.max_archive_bytes"

TEMPLATE_REFUSALS: Final = ArchiveRefusals(
    unreadable="the archive cannot be read",
    entry="the archive's entry {name} is refused: {why}",
    many_entries="the archive has too many entries",
    long_directory="the archive's directory is too long",
    many_bytes="the archive unpacks to more than a template may have",
    far_unpacked=f"the archive unpacks to more than {RATIO_MAX} times its size",
    unknown_compression="its compression is not known here",
    damaged_hint="nothing was stored; pack it again as tar.gz or zip, and send it whole",
    entry_hint=_TEMPLATE_ENTRY,
    large_hint="nothing was stored; make it smaller, or raise templates.max_bytes or templates.max_files",
    ratio_hint="nothing was stored; leave out what is empty, or send a plain tar",
    encrypted_hint="nothing was stored; pack it without a password",
    compression_hint="nothing was stored; pack it with deflate",
    hard_link_hint="nothing was stored; pack with: tar --hard-dereference",
)
UNPACK_REFUSALS: Final = ArchiveRefusals(
    unreadable="the archive cannot be read",
    entry="the archive's entry {name} is refused: {why}",
    many_entries="the archive has too many entries",
    long_directory="the archive's directory is too long",
    many_bytes="the archive unpacks to more than may be unpacked at once",
    far_unpacked=f"the archive unpacks to more than {RATIO_MAX} times its size",
    unknown_compression="its compression is not known here",
    damaged_hint="nothing was unpacked; pack it again as tar.gz or zip",
    entry_hint="nothing was unpacked; pack it without that entry",
    large_hint="nothing was unpacked; make it smaller, or raise files.max_unpacked_bytes or files.max_entries",
    ratio_hint="nothing was unpacked; leave out what is empty, or use a plain tar",
    encrypted_hint="nothing was unpacked; pack it without a password",
    compression_hint="nothing was unpacked; pack it with deflate",
    hard_link_hint="nothing was unpacked; pack with: tar --hard-dereference",
)
MODULE_REFUSALS: Final = ArchiveRefusals(
    unreadable="the module's archive cannot be read",
    entry="the module's archive is refused: its entry {name}: {why}",
    many_entries="the module's archive has too many entries",
    long_directory="the directory of the module's archive is too long",
    many_bytes="the module's archive unpacks to too much",
    far_unpacked=f"the module's archive unpacks to {{times}} times its size; the limit is {RATIO_MAX} times",
    unknown_compression="its compression is not known here; use deflate",
    damaged_hint="nothing was stored; build it again with `corral module build`, and send it whole",
    entry_hint=_MODULE_ENTRY,
    large_hint=_MODULE_LARGE,
    ratio_hint=_MODULE_LARGE,
    encrypted_hint=_MODULE_ENTRY,
    compression_hint=_MODULE_ENTRY,
    hard_link_hint=_MODULE_ENTRY,
)


def cached_template_refusals(name: str) -> ArchiveRefusals:
    """For an archive of this template that a controller sent to a node."""
    unusable, again = f"template '{name}' cannot be used", "upload it to the controller again"
    quoted = unusable.replace("{", "{{").replace("}", "}}")
    return ArchiveRefusals(
        unreadable=f"{unusable}: its archive cannot be read",
        entry=f"{quoted}: its archive's entry {{name}} is refused: {{why}}",
        many_entries=f"{unusable}: it has too many files",
        long_directory=f"{unusable}: its archive's directory is too long",
        many_bytes=f"{unusable}: it unpacks to too much",
        far_unpacked=f"{quoted}: it unpacks to {{times}} times its size",
        unknown_compression="its compression is not known here",
        damaged_hint=again,
        entry_hint=again,
        large_hint=again,
        ratio_hint=again,
        encrypted_hint=again,
        compression_hint=again,
        hard_link_hint=again,
    )
