"""Limits of what a module may send at once, method by method, checked before anything is decoded.

One table for both ends. The host refuses what is over a limit without decoding it, and cuts off a module that
goes on; the SDK refuses it in the module already, so that only code that bypasses the SDK is ever cut off. A
method that is not in the table cannot be offered by a host at all.

Depth and number of parts of a value are read from its msgpack, without recursion: a value that declares
itself deep or has many parts is not walked further than the limit. Invalid msgpack is left to the decoder and
its error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from corral.sdk.protocol import messages as m
from corral.sdk.protocol import storage_messages as s
from corral.sdk.protocol.frames import MAX_CHUNK, MAX_FRAME
from corral.sdk.protocol.instance_messages import MOST_WRITTEN

MAX_DEPTH: Final = 32
"""Most nested lists and maps in a value of free form; the hosts' own limit for decoded values is the same."""
_OPENERS: Final = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_NO_OPENERS: Final = bytes(sorted(set(range(256)) - set(_OPENERS)))
_PLAIN: Final = frozenset([*range(0x80), *range(0xC0, 0xC4), *range(0xE0, 0x100)])
"""Values of a single byte."""
_EMPTY: Final = frozenset([0x80, 0x90])
_FIXED: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""Bytes after the first one of numbers and of small extensions."""
_SIZED: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
"""Bytes of the length of texts, bytes and extensions, and number of bytes between it and the content."""
_CONTAINERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the length of lists and maps, and number of values per item."""


class Nesting(NamedTuple):
    """Result: `problem` is why a value may not be decoded, in words that complete "it", and is empty when it
    may; `parts` is the number of values in it, as far as they were counted."""

    problem: str
    parts: int


def nesting(raw: bytes, *, depth: int, parts: int) -> Nesting:
    """Nesting of the msgpack value at the beginning of `raw`. A value with few lists and maps is not counted:
    it costs no more than its bytes."""
    if len(raw) <= parts and len(raw.translate(None, _NO_OPENERS)) <= depth:
        return Nesting("", 0)
    try:
        return _walked(raw, depth, parts)
    except IndexError:
        return Nesting("", 0)  # cut off: invalid msgpack


def _walked(raw: bytes, depth: int, parts: int) -> Nesting:
    """Containers of containers go on an explicit stack; values within one are skipped without it."""
    above: list[int] = []
    left, position = 1, 0
    for seen in range(parts):
        while not left:
            if not above:
                return Nesting("", seen)
            left = above.pop()
        left -= 1
        code = raw[position]
        position += 1
        if code in _PLAIN:
            continue
        if 0xA0 <= code < 0xC0:
            position += code & 0x1F
        elif code in _FIXED:
            position += _FIXED[code]
        elif code in _SIZED:
            width, more = _SIZED[code]
            position += width + more + int.from_bytes(raw[position : position + width], "big")
        else:
            if len(above) >= depth:
                return Nesting(f"is nested deeper than {depth} levels", seen)
            if code in _EMPTY:
                continue
            above.append(left)
            left, position = _items(raw, code, position)
    problem = "" if not left and not any(above) else f"has more than {parts:,} parts"
    return Nesting(problem, parts)


def _items(raw: bytes, code: int, position: int) -> tuple[int, int]:
    """Number of values that a list or map holds, and where they begin."""
    if code < 0xA0:
        return (code & 0x0F) * (2 if code < 0x90 else 1), position
    width, values = _CONTAINERS[code]
    return int.from_bytes(raw[position : position + width], "big") * values, position + width


KIB: Final = 1024
HEAD_BYTES: Final = 512
"""Most bytes of a message besides its body: tag, number, method, deadline."""
METHOD_BYTES: Final = 200
USUAL_BYTES: Final = 64 * KIB
FAILURE_BYTES: Final = 128 * KIB
"""Most bytes of texts about an exception: the SDK's own limit, at four bytes a character."""
CHUNK_BYTES: Final = MAX_CHUNK + HEAD_BYTES
CAPABILITY_BYTES: Final = 256 * KIB
METRIC_SAMPLES: Final = 2000
USUAL_PARTS: Final = 10_000
MANY_PARTS: Final = 50_000
"""Most values in one body, however large it may be: each costs the same to decode, whether it has a byte or a
thousand."""
_WHOLE: Final = MAX_FRAME - HEAD_BYTES


class FrameLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Limit of one method: the body of a module's call or notice, or its answer to the host's call."""

    size: int = USUAL_BYTES
    levels: int = 4
    """Levels of lists and maps of the body's own form around a value of free form, which has `MAX_DEPTH`
    more."""
    parts: int = USUAL_PARTS
    bytes_per_cost: int = KIB
    """Bytes that cost as much as a message: few where they have to be decoded, many where they are passed
    on."""
    parts_per_cost: int = 10
    """Values in a body that cost as much as a message: they take time to decode and to work with."""

    def size_problem(self, size: int) -> str:
        """Why a body of this size is refused, in words that complete "it"; empty when it is not."""
        return f"has {size:,} bytes, at most {self.size:,} are taken" if size > self.size else ""

    def nesting(self, raw: bytes) -> Nesting:
        """Nesting of the msgpack at the beginning of `raw`; it is read no further than the limit."""
        return nesting(raw, depth=self.levels + MAX_DEPTH, parts=self.parts)


_USUAL: Final = FrameLimit()
_FILTERED: Final = FrameLimit(size=256 * KIB, levels=1, parts=MANY_PARTS)
_DOCUMENTS: Final = FrameLimit(size=_WHOLE, levels=3, parts=MANY_PARTS, bytes_per_cost=2 * KIB)
_KEY_VALUE: Final = FrameLimit(size=2 * 1024 * KIB + 4 * KIB, bytes_per_cost=16 * KIB)
_CAPABILITY: Final = FrameLimit(
    size=CAPABILITY_BYTES + KIB, levels=1, parts=MANY_PARTS, bytes_per_cost=4 * KIB
)

FROM_MODULE: Final[dict[str, FrameLimit]] = {
    # calls and notices of a module
    m.SUBSCRIBE: _USUAL,
    m.UNSUBSCRIBE: _USUAL,
    m.PUBLISH: FrameLimit(size=80 * KIB, levels=1),
    m.SCHEDULE: _USUAL,
    m.CANCEL_TASK: _USUAL,
    m.CALL_CAPABILITY: _CAPABILITY,
    m.METRIC: FrameLimit(size=256 * KIB, parts=MANY_PARTS, parts_per_cost=30),
    m.LOG: FrameLimit(size=64 * KIB),
    m.READ_FILE: _USUAL,
    m.WRITE_FILE: FrameLimit(size=MOST_WRITTEN + 64 * KIB, bytes_per_cost=16 * KIB),
    m.WALK_FILES: _USUAL,
    m.REMOVE_FILE: _USUAL,
    m.SPAWN: FrameLimit(size=256 * KIB),
    m.LIST_PROCESSES: _USUAL,
    m.STOP_PROCESS: _USUAL,
    s.CREATE: _USUAL,
    s.COLLECTIONS: _USUAL,
    s.DROP: _USUAL,
    s.INSERT: _DOCUMENTS,
    s.GET: FrameLimit(size=1024 * KIB),
    s.FIND: _FILTERED,
    s.COUNT: _FILTERED,
    s.UPDATE_MANY: FrameLimit(size=2 * 1024 * KIB, levels=1, parts=MANY_PARTS, bytes_per_cost=4 * KIB),
    s.DELETE_MANY: _FILTERED,
    s.TRANSACTION: _DOCUMENTS,
    s.KV_GET: _USUAL,
    s.KV_PUT: _KEY_VALUE,
    s.KV_COMPARE_AND_SET: _KEY_VALUE,
    s.KV_DELETE: _USUAL,
    s.KV_INCREMENT: _USUAL,
    s.KV_EXPIRE: _USUAL,
    s.KV_KEYS: _USUAL,
    # answers of a module
    m.CONSTRUCT: _USUAL,
    m.HOOK_PREFIX: FrameLimit(levels=1),
    m.HOOK_PREFIX + "on_instance_starting": FrameLimit(size=1280 * KIB, levels=1, parts=MANY_PARTS),
    m.REGISTRATIONS: FrameLimit(size=1024 * KIB, parts=MANY_PARTS),
    m.DELIVER: _USUAL,
    m.RUN_TASK: _USUAL,
    m.ROUTE: FrameLimit(size=_WHOLE, bytes_per_cost=16 * KIB),
    m.CAPABILITY: _CAPABILITY,
    m.COMMAND: FrameLimit(size=1024 * KIB, parts=MANY_PARTS),
    m.HEALTH: _USUAL,
    m.FINISH: FrameLimit(size=256 * KIB),
}
"""By method; `hook.` stands for each hook that has no limit of its own."""


def limit_of(method: str) -> FrameLimit:
    """Limit of a method; of an unknown one, the smallest."""
    found = FROM_MODULE.get(method)
    if found is None and method.startswith(m.HOOK_PREFIX):
        found = FROM_MODULE[m.HOOK_PREFIX]
    return found or _USUAL


def body_problem(method: str, raw: msgspec.Raw) -> str:
    """Why a body may not be sent under a method, in words that complete "it"; empty when it may."""
    limit = limit_of(method)
    return limit.size_problem(len(raw)) or limit.nesting(bytes(raw)).problem


def shown(method: str) -> str:
    """A method's name, shortened for a message: a module may send anything as one."""
    return method[:64]
