"""A node behind the link's port: it keeps consoles as bytes and answers what it is asked."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import re2

from corral.controller.consoles.service import Consoles
from corral.controller.sessions.live_nodes import HostIdentity, SessionFacts
from corral.domain.ids import Epoch, NodeId, SessionId
from corral.wire.features import FEATURES, support_of
from corral.wire.v1.instance_pb2 import (
    ConsoleBatch,
    ConsoleBlock,
    ConsoleGap,
    ConsolePosition,
    ConsoleQuery,
    ConsoleQueryFailed,
    ConsoleQueryResult,
    ConsoleTime,
    ExitStatus,
    InstanceRun,
    SendCommand,
    SendCommandAck,
)
from corral.wire.v1.link_pb2 import ControllerMessage

T0 = 1_700_000_000_000


class StandInNode:
    """`write` is what an instance does; `flush` is the daemon sending what is new."""

    def __init__(self, id: NodeId, *, consoles: Consoles, uploads: Any) -> None:
        self.id = id
        self.facts = SessionFacts(
            id=SessionId(f"session-{id}"),
            node_id=id,
            serial="1",
            certificate_expires_at=dt.datetime.max.replace(tzinfo=dt.UTC),
            host=HostIdentity(machine_id="m", boot_id="b", run_id="r"),
            spool_id="s",
            epoch=Epoch(1),
            supports=support_of(FEATURES),
        )
        self.over = asyncio.Event()
        self.sent: list[ControllerMessage] = []
        self.queries: list[ConsoleQuery] = []
        self.commands: list[str] = []
        self.command_ids: set[tuple[int, str]] = set()
        self.on_command: Callable[[], None] = lambda: None
        self.silent = False
        self.held: list[ConsoleQuery] = []
        self.tells_no_places = False
        self.refuse_queries = ""
        self.refuse_commands = ""
        self.kept: dict[tuple[str, int], bytearray] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.acked: dict[tuple[str, int], int] = {}
        self.watched: dict[tuple[str, int], bool] = {}
        self.instances: Any = None
        self._consoles = consoles
        self._uploads = uploads

    def lacks(self, *abilities: str) -> None:
        """As a daemon of a former version."""
        supports = msgspec.structs.replace(self.facts.supports, **dict.fromkeys(abilities, False))
        self.facts = msgspec.structs.replace(self.facts, supports=supports)

    def write(self, id: str, incarnation: int, data: bytes) -> None:
        self.kept.setdefault((id, incarnation), bytearray()).extend(data)

    def say(self, id: str, incarnation: int, data: bytes) -> None:
        """Written and sent."""
        self.write(id, incarnation, data)
        self.flush(id, incarnation)

    def flush(self, id: str, incarnation: int, *, begin: int | None = None) -> None:
        key = (id, incarnation)
        begin = self.acked.get(key, 0) if begin is None else begin
        data = bytes(self.kept[key][begin:])
        blocks = [self._block(key, begin + at, data[at : at + 65_536]) for at in range(0, len(data), 65_536)]
        self._consoles.receive(self.id, self.confirm_consoles, ConsoleBatch(blocks=blocks))

    def skip(self, id: str, incarnation: int, count: int) -> None:
        """Bytes that the node could not keep: a gap, and a block behind it."""
        key = (id, incarnation)
        begin = len(self.kept[key])
        self.kept[key].extend(b"?" * count)
        gap = ConsoleGap(from_offset=begin, to_offset=begin + count, reason="the disk was full")
        block = ConsoleBlock(
            instance_id=id, incarnation=incarnation, offset=begin + count, data=b"after\n", gaps=[gap]
        )
        self.kept[key].extend(b"after\n")
        self._consoles.receive(self.id, self.confirm_consoles, ConsoleBatch(blocks=[block]))

    def give_up(self, id: str, incarnation: int, count: int) -> None:
        """A gap at the end, behind which nothing comes any more."""
        begin = len(self.kept[id, incarnation])
        self.kept[id, incarnation].extend(b"?" * count)
        gap = ConsoleGap(from_offset=begin, to_offset=begin + count, reason="unknown")
        block = ConsoleBlock(instance_id=id, incarnation=incarnation, offset=begin + count, gaps=[gap])
        self._consoles.receive(self.id, self.confirm_consoles, ConsoleBatch(blocks=[block]))

    @staticmethod
    def _block(key: tuple[str, int], offset: int, data: bytes) -> ConsoleBlock:
        return ConsoleBlock(
            instance_id=key[0],
            incarnation=key[1],
            offset=offset,
            data=data,
            times=[ConsoleTime(offset=offset, timestamp_ms=T0 + offset)],
        )

    def confirm_consoles(self, positions: Sequence[ConsolePosition]) -> None:
        for position in positions:
            self.acked[position.instance_id, position.incarnation] = position.offset
            self.watched[position.instance_id, position.incarnation] = position.watched

    def send(self, message: ControllerMessage) -> bool:
        self.sent.append(message)
        kind = message.WhichOneof("payload")
        if kind == "console_query":
            query = ConsoleQuery()
            query.CopyFrom(message.console_query)
            if self.silent:
                self.held.append(query)
            else:
                self.queries.append(query)
                asyncio.get_running_loop().call_soon(self._answer, query)
        if kind == "send_command" and not self.silent:
            command = message.send_command
            self.on_command()
            by_id = bool(command.command_id) and self.facts.supports.command_ids
            known = by_id and (command.incarnation, command.command_id) in self.command_ids
            refused = "" if known else self.refuse_commands
            if not known:
                self.commands.append(command.command)
            if by_id and not refused:
                self.command_ids.add((command.incarnation, command.command_id))
            ack = SendCommandAck(
                request_id=command.request_id,
                instance_id=command.instance_id,
                incarnation=command.incarnation,
                accepted=not refused,
                error_code=refused,
                error_message="the instance does not read its input" if refused else "",
                unread_bytes=65_536 if refused else 0,
                repeated=known,
                console_offset=self._written(command)
                if not (known or refused or self.tells_no_places)
                else None,
            )
            asyncio.get_running_loop().call_soon(self.instances.commands.answered, self.id, ack)
        return not self.over.is_set()

    def answer_held(self) -> None:
        """What was asked while it was silent."""
        self.silent = False
        while self.held:
            self._answer(self.held.pop(0))

    def _written(self, command: SendCommand) -> int:
        return len(self.kept.get((command.instance_id, command.incarnation), b""))

    def _answer(self, query: ConsoleQuery) -> None:
        key = (query.instance_id, query.incarnation)
        if query.runs and not self.refuse_queries:
            self._uploads.expected[query.request_id].set_result(self._runs(query).SerializeToString())
            return
        if self.refuse_queries or key not in self.kept:
            failed = ConsoleQueryFailed(
                request_id=query.request_id,
                error_code=self.refuse_queries or "CONSOLE_GONE",
                error_message="this console is not kept any more",
            )
            self._consoles.query_failed(self.id, failed)
            return
        result = self._found(query) if query.pattern else self._part(query)
        self._uploads.expected[query.request_id].set_result(result.SerializeToString())

    def _runs(self, query: ConsoleQuery) -> ConsoleQueryResult:
        before = query.before_run or 2**63
        found = sorted(
            run for id, run in self.kept if id == query.instance_id and query.after_run < run < before
        )
        chosen = found[-query.max_lines :] if query.newest else found[: query.max_lines]
        runs = [
            InstanceRun(
                incarnation=run,
                plan_hash="p" * 64,
                started_at_ms=T0 + run,
                ended_at_ms=T0 + run + 500,
                exit=ExitStatus(known=True, code=3, outcome="crashed", summary="exited with code 3"),
                crashed=True,
                end_offset=len(self.kept[query.instance_id, run]),
            )
            for run in chosen
        ]
        return ConsoleQueryResult(runs=runs, more_runs=len(found) > len(chosen))

    def _part(self, query: ConsoleQuery) -> ConsoleQueryResult:
        key = (query.instance_id, query.incarnation)
        data, first = self.kept[key], self.first.get((query.instance_id, query.incarnation), 0)
        until = min(query.to_offset or len(data), len(data))
        begin = max(first, query.from_offset)
        if query.since_ms:
            begin = max(begin, self._line_start(data, query.since_ms - T0, until))
        if query.newest and until - begin > query.max_bytes:
            begin = self._line_start(data, until - query.max_bytes, until)
        part = bytes(data[begin : min(until, begin + query.max_bytes)])
        return ConsoleQueryResult(
            blocks=[self._block(key, begin, part)] if part else [],
            first_offset=first,
            end_offset=len(data),
            next_offset=begin + len(part),
        )

    @staticmethod
    def _line_start(data: bytearray, offset: int, end: int) -> int:
        if offset <= 0:
            return 0
        found = data.find(b"\n", offset - 1) + 1
        return found if 0 < found < end else min(offset, end)

    def _found(self, query: ConsoleQuery) -> ConsoleQueryResult:
        key = (query.instance_id, query.incarnation)
        pattern = re2.compile(query.pattern.encode())
        data = bytes(self.kept[key])
        until = min(query.to_offset or len(data), len(data))
        hits = []
        at = query.from_offset
        for line in data[at:until].splitlines(keepends=True):
            if pattern.search(line.rstrip(b"\n")):
                hits.append((at, line))
            at += len(line)
        chosen = hits[-query.max_lines :] if query.newest else hits[: query.max_lines]
        over = len(chosen) == len(hits)
        reached = chosen[0][0] if query.newest and not over else 0 if query.newest else until
        if not query.newest and not over:
            reached = chosen[-1][0] + len(chosen[-1][1])
        return ConsoleQueryResult(
            blocks=[self._block(key, at, line) for at, line in chosen],
            end_offset=len(data),
            next_offset=reached,
        )
