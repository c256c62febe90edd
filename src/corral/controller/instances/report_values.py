"""Reports of nodes about runs, as bounded values with valid times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import ExitRecord, LeasedPort, Readiness
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId, run_nonce
from corral.domain.instance_states import InstanceState
from corral.domain.modules.records import ModuleChange, Overridden
from corral.domain.node_claims import reported_time
from corral.wire.v1 import instance_pb2 as wire

_TEXT: Final = 1000
_NAME: Final = 63
_PORTS: Final = 64
_MAX_PORT: Final = 65_535
_TAIL_LINES: Final = 500
_TAIL_LINE: Final = 2000
_SIGNATURE: Final = 500
CRASH_BYTES: Final = 64 * 1024
_MODULES: Final = 64
_FILES: Final = 32
_WORDS: Final = 100
_WORD: Final = 300
_ABOUT_MODULES: Final = 65_536
"""The most characters in one record; further entries are named without their text."""

UNSTARTED: Final = frozenset({"start_failed", "never_started"})
"""Outcomes of runs without a process: they have no exit code, whatever an earlier daemon reports."""

_STATES: Final = {
    value: InstanceState(name.removeprefix("INSTANCE_STATE_"))
    for name, value in wire.InstanceState.items()
    if value
}
_READINESS: Final = {
    wire.READINESS_WAITING: Readiness.WAITING,
    wire.READINESS_READY: Readiness.READY,
    wire.READINESS_FAILED: Readiness.FAILED,
}
_STAGE_PREFIX: Final = "START_PREPARATION_STAGE_"

_LISTS: Final = (
    "jvm_args_added",
    "jvm_args_removed",
    "args_added",
    "args_removed",
    "env_set",
    "env_removed",
)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's report about one run, from any kind of message. Incarnation 0: the present one."""

    id: str
    incarnation: int
    state: InstanceState
    pid: int = 0
    started_at: dt.datetime | None = None
    console_end: int = 0
    readiness: Readiness | None = None
    reason: str = ""
    exit: wire.ExitStatus | None = None
    former_exit: wire.ExitStatus | None = None
    """The exit of the previous run, when that was no crash and its node runs this one in its place."""
    module_changes: tuple[ModuleChange, ...] = ()
    modules_missing: tuple[str, ...] = ()
    nonce: str = ""
    files_kept: tuple[str, ...] = ()

    @property
    def names_modules(self) -> bool:
        """False: the report has nothing about modules, possibly because the node does not support it."""
        return bool(self.module_changes or self.modules_missing)


def report_of(
    message: wire.InstanceStatusUpdate | wire.StartInstanceAck | wire.RunningInstance, now: dt.datetime
) -> RunReport | None:
    """The report in a message; None when it names no instance or no state."""
    state = _STATES.get(message.state)
    if state is None or not message.instance_id:
        return None
    return RunReport(
        id=message.instance_id,
        incarnation=message.incarnation,
        state=state,
        pid=max(0, message.pid),
        started_at=reported_time(message.started_at_ms, now),
        console_end=min(message.console_offset, 2**63 - 1),
        readiness=_READINESS.get(message.readiness),
        reason=getattr(message, "reason", "")[:_TEXT],
        exit=message.exit if message.HasField("exit") else None,
        former_exit=_former_exit(message),
        nonce=run_nonce(message.nonce),
        module_changes=_module_changes(message),
        modules_missing=tuple(text[:_TEXT] for text in getattr(message, "modules_missing", ())[:_MODULES]),
        files_kept=tuple(text[:_TEXT] for text in getattr(message, "files_kept", ())[:_FILES]),
    )


def _former_exit(message: object) -> wire.ExitStatus | None:
    if isinstance(message, wire.InstanceStatusUpdate) and message.HasField("former_exit"):
        return message.former_exit
    return None


def _module_changes(
    message: wire.InstanceStatusUpdate | wire.StartInstanceAck | wire.RunningInstance,
) -> tuple[ModuleChange, ...]:
    if isinstance(message, wire.StartInstanceAck):
        return ()
    taken = []
    room = _ABOUT_MODULES
    for change in message.module_changes[:_MODULES]:
        lists = {field: _words(getattr(change, field)) for field in _LISTS}
        lost = _overridden(change)
        room -= sum(len(word) for words in lists.values() for word in words)
        room -= sum(len(each.name) + len(each.by) for each in lost)
        taken.append(
            ModuleChange(
                module=change.module_id[:_NAME],
                version=change.version[:_NAME],
                dropped=change.dropped[:_TEXT],
                overridden=lost if room >= 0 else (),
                **(lists if room >= 0 else {}),
            )
        )
    return tuple(taken)


def _overridden(change: wire.ModuleChange) -> tuple[Overridden, ...]:
    return tuple(
        Overridden(kind=each.kind[:_NAME], name=each.name[:_WORD], by=each.by[:_NAME])
        for each in change.overridden[:_WORDS]
    )


def _words(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word[:_WORD] for word in words[:_WORDS])


def moment(ms: int) -> dt.datetime | None:
    """A time in milliseconds since 1970; None for none, and for an invalid one."""
    if ms <= 0:
        return None
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None


def exit_record(
    status: wire.ExitStatus | None, *, crashed: bool, crash_class: str = "", now: dt.datetime
) -> ExitRecord:
    """The exit of a run; without a status only that it ended."""
    if status is None:
        return ExitRecord(
            known=False,
            code=None,
            signal=None,
            crashed=crashed,
            outcome="unknown",
            summary="the node does not know how it ended",
            ended_at=now,
        )
    known = status.known and status.outcome not in UNSTARTED
    signalled = known and status.signal != 0
    return ExitRecord(
        known=known,
        code=status.code if known and not signalled else None,
        signal=status.signal if signalled else None,
        core_dumped=status.core_dumped,
        crashed=crashed,
        outcome=status.outcome[:_NAME] or ("crashed" if crashed else "stopped"),
        crash_class=(status.crash_class or crash_class)[:_NAME],
        rung=status.rung[:_NAME],
        summary=_without_line(status.summary, status.rung)[:_TEXT],
        ended_at=reported_time(status.ended_at_ms, now) or now,
    )


def _without_line(summary: str, rung: str) -> str:
    """The sentence without the line of the stop ladder that it quotes: nodes of earlier versions write it there, and it
    may contain a password."""
    kind, _, line = rung.partition(" ")
    return summary.replace(f"({rung})", f"({kind})") if line else summary


def leased_ports(message: wire.RunningInstance) -> tuple[LeasedPort, ...]:
    """The ports of an unknown run; invalid ones are left out."""
    return tuple(
        LeasedPort(name=port.name[:_NAME], port=port.port, protocol=PortProtocol(port.protocol))
        for port in message.ports[:_PORTS]
        if 0 < port.port <= _MAX_PORT and port.protocol in PortProtocol.__members__.values()
    )


def stage_name(stage: int) -> str:
    known = stage in wire.StartPreparationStage.values()
    return wire.StartPreparationStage.Name(stage).removeprefix(_STAGE_PREFIX) if known else ""


def crash_record(
    report: wire.CrashReport,
    *,
    id: str,
    incarnation: int,
    node: NodeId,
    exit: ExitRecord,
    now: dt.datetime,
) -> CrashRecord:
    """The stored part of a crash: at most `CRASH_BYTES`, the last lines of its console rather than the first."""
    record = CrashRecord(
        id=id,
        instance=InstanceId(report.instance_id),
        incarnation=Incarnation(incarnation),
        group=GroupName(report.group),
        node=node,
        at=exit.ended_at,
        exit=exit,
        crash_class=exit.crash_class or report.crash_class[:_NAME],
        signature=report.signature[:_SIGNATURE],
        uptime_ms=max(0, report.uptime_ms),
        tail_offset=min(report.log_tail_offset, 2**63 - 1),
        restarted_as=min(report.restarted_as, 2**63 - 1),
        nonce=run_nonce(report.nonce),
        received_at=now,
    )
    room = CRASH_BYTES - len(msgspec.json.encode(record))
    return msgspec.structs.replace(record, tail=_tail_of(report, room))


def _tail_of(report: wire.CrashReport, room: int) -> tuple[str, ...]:
    """The last lines that fit into the room."""
    taken: list[str] = []
    for line in reversed(report.log_tail[-_TAIL_LINES:]):
        cut_line = line[:_TAIL_LINE]
        room -= len(msgspec.json.encode(cut_line)) + 1
        if room < 0:
            break
        taken.append(cut_line)
    return tuple(reversed(taken))


def cut(text: str) -> str:
    return text[:_TEXT]
