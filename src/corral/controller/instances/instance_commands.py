"""Commands: lines for an instance's input, sent to its node, acknowledged, and published as events."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from corral.controller.sessions.session import Session
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.collections import instance_commands
from corral.controller.state.ledger import Actor, Ledger
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import MAX_COUNTER, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.records import CommandRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.port import Append
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.instance_pb2 import SendCommand, SendCommandAck
from corral.wire.v1.link_pb2 import ControllerMessage

COMMAND_SECONDS: Final = 10.0
MAX_LINE: Final = 4095
_TAKES_INPUT: Final = frozenset(
    {InstanceState.STARTING, InstanceState.RUNNING, InstanceState.DRAINING, InstanceState.STOPPING}
)
_PASSING: Final = frozenset(
    {Code.TIMEOUT, Code.SHUTTING_DOWN, Code.UNREACHABLE, Code.DISK_FULL, Code.NODE_OFFLINE}
)

_log = structlog.get_logger("corral.controller.instances")


class CommandTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a line is sent to, and its node."""

    instance: InstanceId
    incarnation: Incarnation
    node: NodeId
    group: str = ""


class SentLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was written to an instance's input, and by whom. `offset` is the position of the run's console then:
    all that the line brings about comes behind it; None: unknown, or it had arrived by an earlier attempt."""

    target: CommandTarget
    line: str
    actor: Actor
    offset: int | None

    def event(self) -> Draft:
        """The event about it."""
        data = {
            "line": self.line,
            "by": self.actor.name,
            "incarnation": self.target.incarnation,
            "group": self.target.group,
            "node": self.target.node,
            "offset": self.offset,
        }
        return Draft(type=EventType.INSTANCE_COMMAND, subject=self.target.instance, data=data)

    def entry(self) -> Append:
        """The entry in the list of commands of its instance."""
        record = CommandRecord(
            line=self.line,
            by=self.actor.name,
            by_name=self.actor.label,
            incarnation=self.target.incarnation,
            node=self.target.node,
            offset=self.offset,
        )
        return instance_commands(self.target.instance).append(record)


class InstanceCommands:
    """Sends lines and resolves their acknowledgements."""

    def __init__(self, *, ledger: Ledger, sessions: Sessions, entropy: Entropy) -> None:
        self._ledger = ledger
        self._sessions = sessions
        self._entropy = entropy
        self._waiting: dict[str, tuple[NodeId, asyncio.Future[SendCommandAck]]] = {}

    def target(self, id: str, line: str) -> CommandTarget:
        """The present run of an instance, if it accepts this line. NOT_RUNNING, NODE_OFFLINE; nothing is
        sent."""
        record = self._ledger.state.instances.require(id).record
        _check(record, line)
        target = CommandTarget(
            instance=record.id, incarnation=record.incarnation, node=record.node, group=record.group
        )
        self._session(target, hint=None)
        return target

    def executes_once(self, target: CommandTarget) -> bool:
        """Whether the node deduplicates commands by id; NODE_OFFLINE while it is disconnected."""
        hint = "the line may have arrived; repeat the request with the same key"
        return self._session(target, hint=hint).facts.supports.command_ids

    async def send(
        self,
        target: CommandTarget,
        line: str,
        *,
        id: str = "",
        repeated: bool = False,
        timeout: float = COMMAND_SECONDS,
    ) -> int | None:
        """Returns when the line is in the run's input, with the position of its console then, if the node tells it.
        NODE_OFFLINE, TIMEOUT, or the node's own code; after
        TIMEOUT the line may have arrived all the same. With an `id` the node executes it once however often
        it is sent; `repeated`: it may have been sent before."""
        request_id = new_id("cmd", self._entropy)
        message = ControllerMessage(
            send_command=SendCommand(
                instance_id=target.instance,
                command=line,
                incarnation=target.incarnation,
                request_id=request_id,
                command_id=id,
                repeated=repeated,
            )
        )
        session = self._session(target, hint=None)
        answer: asyncio.Future[SendCommandAck] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = target.node, answer
        try:
            if not session.send(message):
                raise _away(target, hint=None)
            async with asyncio.timeout(timeout):
                ack = await answer
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"node '{target.node}' did not answer within {timeout:g} s",
                hint="the line may have arrived; look at the console",
            ) from None
        finally:
            del self._waiting[request_id]
        if not ack.accepted:
            refusal = _refusal(ack)
            _log.info("command.refused", code=refusal.code.name, **_ids(target))
            raise refusal
        _log.info("command.accepted", **_ids(target))
        known = ack.HasField("console_offset") and ack.console_offset <= MAX_COUNTER
        return ack.console_offset if known else None

    def _session(self, target: CommandTarget, *, hint: str | None) -> Session:
        session = self._sessions.find(target.node)
        if session is None:
            raise _away(target, hint=hint)
        return session

    def answered(self, node_id: NodeId, ack: SendCommandAck) -> bool:
        """A node's answer; False when it is not the node that the command was sent to."""
        waiting = self._waiting.get(ack.request_id)
        if waiting is None:
            return True  # late
        if waiting[0] == node_id and not waiting[1].done():
            waiting[1].set_result(ack)
        return waiting[0] == node_id


def _ids(target: CommandTarget) -> dict[str, str | int]:
    """The fields of a log record. The line is left out, because it may contain a password."""
    return {"instance": target.instance, "incarnation": target.incarnation, "node": target.node}


def _away(target: CommandTarget, *, hint: str | None) -> Retryable:
    return Retryable(
        Code.NODE_OFFLINE,
        f"node '{target.node}' of instance '{target.instance}' is not connected",
        hint=hint,
        retry_after=5.0,
    )


def _check(record: InstanceRecord, line: str) -> None:
    if "\n" in line or "\r" in line or "\0" in line or len(line.encode()) > MAX_LINE:
        raise Rejected(
            Code.INVALID_FIELD, f"a command is one line of at most {MAX_LINE} bytes", field="command"
        )
    if not line:
        raise Rejected(Code.MISSING_FIELD, "the command is empty", field="command")
    if record.state is InstanceState.OFFLINE:
        raise Retryable(
            Code.NODE_OFFLINE,
            f"node '{record.node}' of instance '{record.id}' is out of reach",
            retry_after=5.0,
        )
    if record.state not in _TAKES_INPUT:
        raise Rejected(
            Code.NOT_RUNNING,
            f"instance '{record.id}' is {record.state} and takes no input",
            hint=f"start it with 'corral instance restart {record.id}', or wait until it runs",
        )


def _refusal(ack: SendCommandAck) -> CorralError:
    """The node's error message, under a known code."""
    code = Code.__members__.get(ack.error_code, Code.INTERNAL)
    message = ack.error_message[:1000] or "the node refused the line"
    if code is Code.INPUT_NOT_READ and ack.unread_bytes and str(ack.unread_bytes) not in message:
        message = f"{message} ({ack.unread_bytes} bytes are unread)"
    return Retryable(code, message) if code in _PASSING else Rejected(code, message)
