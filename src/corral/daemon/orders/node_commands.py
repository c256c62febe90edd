"""Commands about this node itself, from the link: a small table of what only the node can tell. No shell, no program and no
file of anybody's choice: each is answered from memory and the kernel's figures, and none changes anything."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from corral.daemon.node import host_info
from corral.daemon.orders.link_orders import Reply
from corral.daemon.orders.local_socket import as_item, lost_item
from corral.daemon.runs.run_messages import cut
from corral.daemon.supervise.supervision import Supervision
from corral.domain.ids import NodeId
from corral.errors import Code, CorralError, Rejected, unknown_choice
from corral.system.aio.tasks import Tasks
from corral.system.clock import boot_id
from corral.version import VERSION
from corral.wire.frame_table import require
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import ModuleSetEntry
from corral.wire.v1.node_pb2 import NodeCommandResult
from corral.wire.v1.plan_pb2 import CacheStatus

WORDS_MAX: Final = 16
WORD_MAX: Final = 200
LINES_MAX: Final = 2000
TEXT_MAX: Final = 192 * 1024
WAITING: Final = 8
_log = structlog.get_logger("corral.daemon.orders")

Item = Mapping[str, Any]
Answer = Callable[[Sequence[str]], Awaitable[list[Item]]]


class NodeCommandOrders:
    """Answers commands; each has an answer, whatever is in it."""

    def __init__(
        self,
        supervision: Supervision,
        *,
        node_id: NodeId,
        cache: Callable[[], CacheStatus],
        modules: Callable[[], Iterable[ModuleSetEntry]],
    ) -> None:
        self._supervision = supervision
        self._node_id = node_id
        self._cache = cache
        self._modules = modules
        self._tasks = Tasks()
        self._table: dict[str, tuple[str, Answer]] = {
            "node info": ("this host, its daemon and what it has to give", self._node),
            "node resources": ("the same", self._node),
            "instance list": ("runs on this node, with their pids", self._instances),
            "instance info": ("one of them: instance info ID", self._instance),
            "module list": ("modules that this node has", self._list_modules),
            "cache list": ("templates and programs that this node has", self._list_cache),
            "ports": ("ports that runs on this node hold", self._ports),
            "help": ("these commands; each takes -o json", self._help),
        }
        self.handlers: dict[str, Callable[[Reply, ControllerMessage], None]] = {"node_command": self._take}

    async def close(self) -> None:
        await self._tasks.close()

    def _take(self, reply: Reply, message: ControllerMessage) -> None:
        request_id, words = message.node_command.request_id, list(message.node_command.words[: WORDS_MAX + 1])
        if len(self._tasks) >= WAITING:
            error = Rejected(Code.RATE_LIMITED, f"{WAITING} commands are waiting already")
            reply(_refusal(request_id, error))
            return
        try:
            require(message.node_command)
        except CorralError as error:
            reply(_refusal(request_id, error))
            return
        self._tasks.spawn(self._answer(reply, request_id, words), name="orders/command", keeps_ids=True)

    async def _answer(self, reply: Reply, request_id: str, words: Sequence[str]) -> None:
        try:
            lines = await self.run(words)
        except CorralError as error:
            reply(_refusal(request_id, error))
        except Exception as error:
            _log.error("node_command.failed", exc_info=error)
            reply(
                _refusal(request_id, Rejected(Code.INTERNAL, "the command failed; the node's log has more"))
            )
        else:
            result = NodeCommandResult(request_id=request_id, lines=lines)
            reply(DaemonMessage(node_command_result=result))

    async def run(self, words: Sequence[str]) -> list[str]:
        """The lines of a command. NOT_FOUND, BAD_REQUEST."""
        if len(words) > WORDS_MAX or any(len(word) > WORD_MAX for word in words):
            raise Rejected(
                Code.BAD_REQUEST, f"a command has at most {WORDS_MAX} words of {WORD_MAX} characters"
            )
        words, form = _form_of(words)
        for size in (2, 1):
            known = self._table.get(" ".join(words[:size]))
            if known is not None:
                items = await known[1](words[size:])
                return _bounded(_json(items) if form == "json" else _table(items))
        raise unknown_choice("command", " ".join(words[:2]), self._table, code=Code.NOT_FOUND)

    async def _help(self, _: Sequence[str]) -> list[Item]:
        return [{"command": name, "help": text} for name, (text, _) in self._table.items()]

    async def _node(self, words: Sequence[str]) -> list[Item]:
        _refuse_more(words)
        supervision = self._supervision
        status = await asyncio.to_thread(
            host_info.StatusSampler(supervision.services.runs.root.parent).sample
        )
        facts = {
            "node": self._node_id,
            "version": VERSION,
            "pid": os.getpid(),
            "boot": boot_id(),
            "load": " ".join(f"{each:.2f}" for each in os.getloadavg()),
            "cpus": host_info.usable_cpus(),
            "memory_mb": status.total_memory_mb,
            "used_memory_mb": status.used_memory_mb,
            "disk_mb": status.total_disk_mb,
            "free_disk_mb": status.free_disk_mb,
            "runtimes": ",".join(supervision.services.runtimes.names()),
            "instances": supervision.supervisor.live_count(),
            "ports": len(supervision.services.ports.numbers()),
        }
        return [{"fact": name, "value": value} for name, value in facts.items()]

    def _items(self) -> list[Item]:
        supervisor = self._supervision.supervisor
        return [*map(as_item, supervisor.instances.runs()), *map(lost_item, supervisor.lost())]

    async def _instances(self, words: Sequence[str]) -> list[Item]:
        _refuse_more(words)
        return [
            {name: item[name] for name in ("id", "group", "incarnation", "state", "pid", "port")}
            for item in self._items()
        ]

    async def _instance(self, words: Sequence[str]) -> list[Item]:
        if len(words) != 1:
            raise Rejected(Code.BAD_REQUEST, "name one instance", hint="instance info ID")
        found = next((item for item in self._items() if item["id"] == words[0]), None)
        if found is None:
            raise Rejected(
                Code.NOT_FOUND, f"this node has no run of instance '{words[0]}'", hint="instance list"
            )
        return [{"fact": name, "value": value} for name, value in found.items()]

    async def _list_modules(self, words: Sequence[str]) -> list[Item]:
        _refuse_more(words)
        return [
            {"module": each.module_id, "version": each.version, "phase": each.state, "reason": each.reason}
            for each in self._modules()
        ]

    async def _list_cache(self, words: Sequence[str]) -> list[Item]:
        _refuse_more(words)
        status = self._cache()
        templates = [("template", each.name, each.hash, each.size_bytes) for each in status.templates]
        programs = [
            ("program", f"{each.platform}/{each.version}", each.sha256, each.size_bytes)
            for each in status.jars
        ]
        return [
            {"kind": kind, "name": name, "digest": digest, "size": size}
            for kind, name, digest, size in (*templates, *programs)
        ]

    async def _ports(self, words: Sequence[str]) -> list[Item]:
        _refuse_more(words)
        held = set(self._supervision.services.ports.numbers())
        found = [
            {
                "port": port.port,
                "name": port.name,
                "protocol": str(port.protocol),
                "instance": run.order.instance_id,
            }
            for run in self._supervision.supervisor.instances.runs()
            for port in run.order.ports
            if port.port in held and not run.ended
        ]
        return sorted(found, key=lambda item: item["port"])


def _form_of(words: Sequence[str]) -> tuple[list[str], str]:
    rest, form = list(words), "table"
    if "-o" in rest:
        at = rest.index("-o")
        form = rest[at + 1] if at + 1 < len(rest) else ""
        del rest[at : at + 2]
    if form not in ("table", "json"):
        raise unknown_choice("form", form, ("table", "json"), code=Code.BAD_REQUEST)
    return rest, form


def _refuse_more(words: Sequence[str]) -> None:
    if words:
        raise Rejected(Code.BAD_REQUEST, f"the command takes no '{words[0]}'", hint="help")


def _json(items: Sequence[Item]) -> list[str]:
    if items and items[0].keys() == {"fact", "value"}:
        return json.dumps({item["fact"]: item["value"] for item in items}, indent=2).splitlines()
    return json.dumps({"items": list(items)}, indent=2).splitlines()


def _table(items: Sequence[Item]) -> list[str]:
    if not items:
        return ["nothing"]
    rows = [[str(name).upper() for name in items[0]]]
    rows += [
        ["-" if value is None or value == "" else str(value) for value in item.values()] for item in items
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = rows[1:] if rows[0] == ["FACT", "VALUE"] else rows
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def _bounded(lines: Sequence[str]) -> list[str]:
    """Less than a frame."""
    kept: list[str] = []
    room = TEXT_MAX
    for line in lines[:LINES_MAX]:
        text = cut(line)
        room -= len(text.encode())
        if room < 0:
            break
        kept.append(text)
    if len(kept) < len(lines):
        kept.append(f"({len(lines) - len(kept)} lines more are left out)")
    return kept


def _refusal(request_id: str, error: CorralError) -> DaemonMessage:
    result = NodeCommandResult(
        request_id=request_id,
        error_code=error.code.name,
        error_message=cut(error.message),
        error_hint=cut(error.hint or ""),
    )
    return DaemonMessage(node_command_result=result)
