"""How an archive or one of its entries is refused: always by name, always with a way out."""

from __future__ import annotations

from corral.archives.limits import RATIO_MAX
from corral.errors import Code, Rejected

_SHOWN = 160


def shown(name: str) -> str:
    """An entry's name for a message: on one line, and not longer than one."""
    cut = name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "..."
    return repr(cut)


def entry_refused(
    name: str, why: str, *, hint: str = "nothing was stored; pack it without that entry"
) -> Rejected:
    return Rejected(Code.PATH_REFUSED, f"the archive's entry {shown(name)} is refused: {why}", hint=hint)


def entry_damaged(name: str, why: str) -> Rejected:
    return damaged(f"its entry {shown(name)}: {why}")


def damaged(why: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_INVALID,
        f"the archive cannot be read: {why}",
        hint="nothing was stored; pack it again as tar.gz or zip, and send it whole",
    )


def too_large(what: str, limit: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_TOO_LARGE,
        f"{what}; the limit is {limit}",
        hint="nothing was stored; make it smaller, or raise templates.max_bytes or templates.max_files",
    )


def unpacks_too_far() -> Rejected:
    return Rejected(
        Code.ARCHIVE_TOO_LARGE,
        f"the archive unpacks to more than {RATIO_MAX} times its size",
        hint="nothing was stored; leave out what is empty, or send a plain tar",
    )


def too_many_entries(max_files: int) -> Rejected:
    return too_large("the archive has too many entries", f"{max_files} files")
