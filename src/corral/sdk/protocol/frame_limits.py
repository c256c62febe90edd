"""What a module may send at once, method by method: looked at before anything of it is decoded.

One table for both ends. The host refuses what is over a limit without decoding it, and cuts off a module that
goes on; the SDK refuses it in the module already, so that only somebody who goes past the SDK is ever cut off.
A method that is not in the table cannot be offered by a host at all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from corral.sdk.protocol import messages as m
from corral.sdk.protocol import storage_messages as s
from corral.sdk.protocol.frames import MAX_CHUNK, MAX_FRAME
from corral.sdk.protocol.instance_messages import MOST_WRITTEN
from corral.sdk.protocol.nesting import MAX_DEPTH, Nesting, nesting

KIB: Final = 1024
HEAD_BYTES: Final = 512
"""What a message holds besides its body: tag, number, method, deadline."""
METHOD_BYTES: Final = 200
USUAL_BYTES: Final = 64 * KIB
FAILURE_BYTES: Final = 128 * KIB
"""Texts about an exception: as long as the SDK lets them be, four bytes a character."""
CHUNK_BYTES: Final = MAX_CHUNK + HEAD_BYTES
CAPABILITY_BYTES: Final = 256 * KIB
METRIC_SAMPLES: Final = 2000
USUAL_PARTS: Final = 10_000
MANY_PARTS: Final = 50_000
"""Values in one body, however large it may be: each costs the same to decode, whether it has a byte or a thousand."""
_WHOLE: Final = MAX_FRAME - HEAD_BYTES


class FrameLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What a module may send under one method: the body of its call or notice, or its answer to the host's call."""

    size: int = USUAL_BYTES
    levels: int = 4
    """Lists and maps that the body's own form has around a value of free form, which has `MAX_DEPTH` more."""
    parts: int = USUAL_PARTS
    bytes_per_cost: int = KIB
    """How many bytes cost as much as a message: few where they have to be decoded, many where they are passed on."""
    parts_per_cost: int = 10
    """How many values in a body do: it is they that take time, to decode and to work with."""

    def size_problem(self, size: int) -> str:
        """Why a body of this size is not taken, in words that complete "it"; empty when it is."""
        return f"has {size:,} bytes, at most {self.size:,} are taken" if size > self.size else ""

    def nesting(self, raw: bytes) -> Nesting:
        """How the msgpack is nested that `raw` begins with; it is read no further than the limit goes."""
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
    """What a module may send under a method; under one that nobody knows, as little as under any."""
    found = FROM_MODULE.get(method)
    if found is None and method.startswith(m.HOOK_PREFIX):
        found = FROM_MODULE[m.HOOK_PREFIX]
    return found or _USUAL


def body_problem(method: str, raw: msgspec.Raw) -> str:
    """Why a body may not be sent under a method, in words that complete "it"; empty when it may."""
    limit = limit_of(method)
    return limit.size_problem(len(raw)) or limit.nesting(bytes(raw)).problem


def shown(method: str) -> str:
    """A method's name for a message: it is whatever the module says."""
    return method[:64]
