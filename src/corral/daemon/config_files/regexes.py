r"""Patches by pattern, over the bytes of a file: what does not match stays, whatever its encoding.

In the new text `\1` and `\g<name>` stand for groups, `\0` for the match, `\\` for a backslash.
"""

from __future__ import annotations

import re
import time
from typing import Final

from corral.daemon.config_files.faults import MAX_BYTES, Impossible
from corral.domain.patterns import Pattern, check_template, compile_bytes, compile_pattern
from corral.errors import CorralError

_REFERENCE: Final = re.compile(r"\\(?:([0-9])|g<([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2})>|(\\))")
_SECONDS: Final = 2.0


def replace_matches(data: bytes, pattern: str, template: str) -> bytes:
    """Every match replaced; none is fine. One search is linear in the file whatever the pattern, but a file
    may hold as many matches as bytes: so all of them together have a deadline."""
    try:
        known = compile_pattern(pattern, field="path", multiline=True)
        check_template(known, template, field="value")
        compiled = compile_bytes(pattern, field="path", multiline=True)
    except CorralError as error:
        raise Impossible(error.message) from error
    parts = _parts(known, template)
    deadline = time.monotonic() + _SECONDS
    found: list[bytes] = []
    reached = size = 0
    for match in compiled.finditer(data):
        start, end = match.start(), match.end()
        if start == end and data[start : start + 1] and 0x80 <= data[start] < 0xC0:
            continue  # nothing is found within a character
        new = b"".join(part if isinstance(part, bytes) else match[part] or b"" for part in parts)
        found += (data[reached:start], new)
        size += start - reached + len(new)
        reached = end
        if size > MAX_BYTES:
            raise Impossible(f"it would have more than {MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise Impossible(f"its matches are not found within {_SECONDS:g} s")
    return b"".join((*found, data[reached:]))


def _parts(pattern: Pattern, template: str) -> list[bytes | int]:
    """The template as texts and numbers of groups."""
    parts: list[bytes | int] = []
    reached = 0
    for found in _REFERENCE.finditer(template):
        parts.append(template[reached : found.start()].encode())
        name = found[1] or found[2]
        if name is None:
            parts.append(b"\\")
        else:
            parts.append(int(name) if name.isdigit() else pattern.groupindex[name])
        reached = found.end()
    return [*parts, template[reached:].encode()]
