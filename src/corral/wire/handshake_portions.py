"""A handshake that lists more running instances than one frame may hold, cut into portions."""

from __future__ import annotations

from typing import Final

from corral.wire.v1.node_pb2 import Handshake, HandshakePortion

MOST_RUNNING: Final = 5000
"""Running instances in one frame."""
_ONE_FRAME_BYTES: Final = 2 * 1024 * 1024
_PORTION_BYTES: Final = 1024 * 1024
_PORTION_RUNS: Final = 2000


def portions_of(handshake: Handshake) -> list[HandshakePortion]:
    """What follows the handshake, which loses it; nothing when all of it fits into its own frame."""
    if len(handshake.running_instances) <= MOST_RUNNING and handshake.ByteSize() <= _ONE_FRAME_BYTES:
        return []
    portions = [HandshakePortion()]
    size = 0
    for run in handshake.running_instances:
        taken = run.ByteSize()
        full = len(portions[-1].running_instances) >= _PORTION_RUNS or size + taken > _PORTION_BYTES
        if full and portions[-1].running_instances:
            portions.append(HandshakePortion())
            size = 0
        portions[-1].running_instances.append(run)
        size += taken
    portions[-1].last = True
    handshake.ClearField("running_instances")
    handshake.portions_follow = True
    return portions
