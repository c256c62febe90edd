"""Two layers of one configuration file made into one, where a group asks for it."""

from __future__ import annotations

from corral.daemon.config_files.faults import MAX_BYTES, Impossible, Malformed
from corral.daemon.config_files.formats import FORMATS
from corral.domain.config_patches import format_of
from corral.errors import Code, Rejected


def mergeable(name: str) -> bool:
    """Whether the ending of this file says how to merge it."""
    return bool(format_of(name))


def merged(lower: bytes, upper: bytes, *, name: str) -> bytes:
    """The lower layer with the upper one over it: maps key by key, lists and all else as a whole, properties
    per key. Comments, order and layout are the lower one's. A file of no such format is the upper one."""
    kind = FORMATS.get(format_of(name))
    if kind is None:
        return upper
    if max(len(lower), len(upper)) > MAX_BYTES:
        raise _invalid(name, f"it has more than {MAX_BYTES} bytes")
    try:
        return kind.merge(lower, upper)
    except Malformed as error:
        where = f" in line {error.line}" if error.line else ""
        raise _invalid(name, f"it is not valid {format_of(name)}{where}: {error.why}") from error
    except Impossible as error:
        raise _invalid(name, error.why) from error


def _invalid(name: str, why: str) -> Rejected:
    return Rejected(
        Code.CONFIG_FILE_INVALID,
        f"the layers of {name} cannot be merged: {why}",
        hint="correct the file in its template, or take it out of the group's 'merge'",
        field="file",
    )
