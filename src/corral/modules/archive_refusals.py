"""How a module's archive is refused: by the entry's name where there is one, always with a way out."""

from __future__ import annotations

from corral.errors import Code, Rejected

_SHOWN = 160


def shown(name: str) -> str:
    """An entry's name for a message: on one line, and not longer than one."""
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")


def damaged(why: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_INVALID,
        f"the module's archive cannot be read: {why}",
        hint="nothing was stored; build it again with `corral module build`, and send it whole",
    )


def entry_damaged(name: str, why: str) -> Rejected:
    return damaged(f"its entry {shown(name)}: {why}")


def entry_refused(name: str, why: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"the module's archive is refused: its entry {shown(name)}: {why}",
        hint="nothing was stored; build it with `corral module build`, or pack it without that entry",
    )


def too_large(what: str, limit: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_TOO_LARGE,
        f"{what}; the limit is {limit}",
        hint="nothing was stored; make it smaller, or raise modules.max_archive_bytes",
    )
