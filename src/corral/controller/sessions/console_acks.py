"""Positions of consoles that a node is told it may forget up to: all that wait leave in one message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from corral.wire.outbox import MAX_MESSAGES, Outbox
from corral.wire.v1.instance_pb2 import ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage

_KEY: Final = "console-acks"


class ConsoleAcks:
    """The latest position of each console that was not sent yet. A node may invent consoles, so their number is
    bounded: beyond it, its stream is over."""

    def __init__(self, outbox: Outbox[ControllerMessage]) -> None:
        self._outbox = outbox
        self._waiting: dict[tuple[str, int], ConsolePosition] = {}

    def add(self, positions: Iterable[ConsolePosition]) -> None:
        """Never blocks."""
        for position in positions:
            self._waiting[position.instance_id, position.incarnation] = position
        if len(self._waiting) > MAX_MESSAGES:
            self._waiting.clear()
            self._outbox.overflow()
        elif self._waiting:
            self._outbox.assemble(_KEY, self._message)

    def _message(self) -> ControllerMessage:
        message = ControllerMessage()
        message.console_ack.positions.extend(self._waiting.values())
        self._waiting.clear()
        return message
