"""Decisions about a module: the next thing to do, from what is stored and what is running. Pure.

The engine calls `decide` after each thing it did, until the result is to rest. So nothing depends on how a
module reached its state: a host that was killed in the middle of anything continues from the record.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.modules.phases import MODULE_LIFECYCLE, ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.modules.records import (
    CAPABILITY_CONFLICT,
    HISTORY_LENGTH,
    WAITING_FOR,
    FailureDetails,
    PackageRecord,
    PhaseStep,
)
from corral.domain.modules.verbs import VERBS, Verb
from corral.errors import Code, IllegalTransition, Rejected

DEATHS_WINDOW: Final = 600.0
"""Seconds within which deaths of a process are counted."""
_HELD_BACK: Final = {ModuleIntent.PAUSED: "paused", ModuleIntent.INACTIVE: "deactivated"}
"""The reason of a module that an operator holds back."""
_RECENT_STEPS: Final = 5
"""Steps of the history that a refusal shows."""
MODULES_DISABLED: Final = "modules_disabled"
"""The reason of a module that would run, on a host that was started without modules."""


class Runs(enum.Enum):
    """The progress of the module's process."""

    NOTHING = "nothing"
    LOADED = "loaded"
    """`on_load` is done."""
    STARTED = "started"
    """`on_start` is done, and its registrations are valid."""
    BOUND = "bound"
    """Its handles, routes and commands are bound."""


class Todo(enum.Enum):
    """Actions of the engine. Each ends with a step of the table, or with nothing left to do."""

    REST = "rest"
    LOAD = "load"
    """Start the process where there is none, construct, `on_load`; then INSTALLED -> WAITING."""
    START = "start"
    """`on_upgrade`, `on_start`, registrations; then WAITING -> ACTIVE, and all of it bound."""
    BIND = "bind"
    """The module is stored as ACTIVE already: bind what it registered."""
    WITHDRAW = "withdraw"
    """WAITING -> INSTALLED; it never started. Held back, it is unloaded before."""
    STOP = "stop"
    """ACTIVE -> STOPPING."""
    FINISH_STOP = "finish_stop"
    """`on_stop`, clean-up; then STOPPING -> INSTALLED. Held back, it is unloaded before; one that only lacks a
    capability stays loaded."""
    UNLOAD = "unload"
    """`on_unload` and the end of its process; it is INSTALLED and stays so."""
    REWIND = "rewind"
    """By the table back to INSTALLED: there is no process that could be in this phase."""
    EXPLAIN = "explain"
    """Stay, but record the new reason."""
    FAIL = "fail"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All inputs of a decision."""

    phase: ModulePhase
    intent: ModuleIntent
    reason: str = ""
    hosted: bool = True
    """Whether the module has a class for this host; without, it follows its intent and runs nothing."""
    enabled: bool = True
    """Whether this host runs modules at all; where it does not, the intent is kept, and waits."""
    runs: Runs = Runs.NOTHING
    unresolved: tuple[str, ...] = ()
    """Ids of the requirements that it cannot start without."""
    conflict: str = ""
    """Id of a capability it provides and another active module provides already."""
    waited_out: bool = False
    """The module has been WAITING for the longest time allowed."""
    backing_off: bool = False
    """Its process died; the time of the next attempt has not come."""
    lost: str = "host_restarted"
    """Why there is no process, where there is none."""
    failed_reason: str = ""
    """The reason of something that can end in FAILED only."""
    inactive_reason: str = ""
    """Why its desired state is not active, where the intent alone does not explain it."""


class LifecycleDecision(msgspec.Struct, frozen=True, kw_only=True):
    todo: Todo
    reason: str = ""


REST: Final = LifecycleDecision(todo=Todo.REST)


def decide(view: View) -> LifecycleDecision:
    """The next thing to do."""
    if view.phase in (ModulePhase.FAILED, ModulePhase.UNLOADED):
        return REST
    if view.failed_reason:
        return LifecycleDecision(todo=Todo.FAIL, reason=view.failed_reason)
    return _IN_PHASE[view.phase](view)


def _installed(view: View) -> LifecycleDecision:
    if view.intent is not ModuleIntent.ACTIVE:
        return _held_back(view) if view.runs is Runs.NOTHING else LifecycleDecision(todo=Todo.UNLOAD)
    if view.hosted and not view.enabled:
        return REST if view.reason == MODULES_DISABLED else _explain(MODULES_DISABLED)
    if view.backing_off:
        return REST
    return LifecycleDecision(todo=Todo.LOAD, reason=_waiting(view))


def _held_back(view: View) -> LifecycleDecision:
    """The module rests; paused and then deactivated, or the other way round, the reason is the later one."""
    if (
        view.inactive_reason
        or view.reason not in _HELD_BACK.values()
        or view.reason == _HELD_BACK[view.intent]
    ):
        return REST
    return _explain(_HELD_BACK[view.intent])


def _explain(reason: str) -> LifecycleDecision:
    return LifecycleDecision(todo=Todo.EXPLAIN, reason=reason)


def _waiting_phase(view: View) -> LifecycleDecision:
    if view.hosted and view.runs is Runs.NOTHING:
        return LifecycleDecision(todo=Todo.REWIND, reason=view.lost)
    if view.intent is not ModuleIntent.ACTIVE:
        return LifecycleDecision(todo=Todo.WITHDRAW, reason=_inactive_reason(view))
    if view.unresolved:
        if view.waited_out:
            return LifecycleDecision(todo=Todo.FAIL, reason=f"wait_timeout:{view.unresolved[0]}")
        if view.reason != _waiting(view):
            return _explain(_waiting(view))
        return REST
    if view.conflict:
        return LifecycleDecision(todo=Todo.FAIL, reason=f"{CAPABILITY_CONFLICT}:{view.conflict}")
    return LifecycleDecision(todo=Todo.START)


def _active(view: View) -> LifecycleDecision:
    if view.hosted and view.runs in (Runs.NOTHING, Runs.LOADED):
        return LifecycleDecision(todo=Todo.REWIND, reason=view.lost)
    if view.hosted and view.runs is Runs.STARTED:
        return LifecycleDecision(todo=Todo.BIND)
    if view.intent is not ModuleIntent.ACTIVE:
        return LifecycleDecision(todo=Todo.STOP, reason=_inactive_reason(view))
    if view.unresolved:
        return LifecycleDecision(todo=Todo.STOP, reason=f"capability_vanished:{view.unresolved[0]}")
    return REST


def _stopping(view: View) -> LifecycleDecision:
    if view.hosted and view.runs is Runs.NOTHING:
        return LifecycleDecision(todo=Todo.REWIND, reason=view.lost)
    return LifecycleDecision(todo=Todo.FINISH_STOP, reason=view.reason)


_IN_PHASE = {
    ModulePhase.INSTALLED: _installed,
    ModulePhase.WAITING: _waiting_phase,
    ModulePhase.ACTIVE: _active,
    ModulePhase.STOPPING: _stopping,
}


def _waiting(view: View) -> str:
    return f"{WAITING_FOR}{view.unresolved[0]}" if view.unresolved else ""


def _inactive_reason(view: View) -> str:
    return view.inactive_reason or _HELD_BACK[view.intent]


# --- steps of the record -------------------------------------------------------------------------


def stepped(
    record: PackageRecord,
    trigger: ModuleTrigger,
    *,
    reason: str,
    at: dt.datetime,
    version: str = "",
    failure: FailureDetails | None = None,
) -> PackageRecord:
    """The record after one step, with the step in its history; `IllegalTransition` when the table has none.
    `version`: the version of the step, where that is not the record's own."""
    phase = MODULE_LIFECYCLE.step(subject(record), record.phase, trigger, story=recent(record))
    step = PhaseStep(
        at=at, from_phase=record.phase, to_phase=phase, reason=reason, version=version or record.version
    )
    return msgspec.structs.replace(
        record,
        phase=phase,
        reason=reason,
        updated_at=at,
        history=(*record.history, step)[-HISTORY_LENGTH:],
        failure=failure if trigger is ModuleTrigger.FAIL else _kept(record, trigger),
    )


def _kept(record: PackageRecord, trigger: ModuleTrigger) -> FailureDetails | None:
    """The failure is kept until the module is recovered or replaced."""
    return None if trigger is ModuleTrigger.RECOVER else record.failure


def first_step(record: PackageRecord, *, at: dt.datetime) -> PackageRecord:
    """A new record, with its installation as the first step of its history."""
    step = PhaseStep(
        at=at,
        from_phase=None,
        to_phase=ModulePhase.INSTALLED,
        reason="installed",
        version=record.version,
    )
    return msgspec.structs.replace(
        record,
        phase=ModulePhase.INSTALLED,
        reason="installed",
        history=(step,),
        failure=None,
        data_version="",
    )


def loaded(record: PackageRecord, *, reason: str, at: dt.datetime) -> PackageRecord:
    """The record of a module whose `on_load` is done: from now on data may be there, if none was before."""
    stepped_on = stepped(record, ModuleTrigger.ACTIVATE, reason=reason, at=at)
    return msgspec.structs.replace(stepped_on, data_version=record.version_of_data or record.version)


def rewound(record: PackageRecord, *, reason: str, at: dt.datetime) -> PackageRecord:
    """The record stepped back to INSTALLED by the table, from any phase in which something may run."""
    if record.phase is ModulePhase.ACTIVE:
        record = stepped(record, ModuleTrigger.STOP, reason=reason, at=at)
    if record.phase is ModulePhase.STOPPING:
        return stepped(record, ModuleTrigger.STOPPED, reason=reason, at=at)
    if record.phase is ModulePhase.WAITING:
        return stepped(record, ModuleTrigger.STOP, reason=reason, at=at)
    return record


def subject(record: PackageRecord) -> str:
    return f"module '{record.id}'"


def recent(record: PackageRecord) -> list[str]:
    return [str(step) for step in record.history[-_RECENT_STEPS:]]


# --- verbs ---------------------------------------------------------------------------------------


def check_verb(record: PackageRecord, verb: Verb) -> None:
    """Raise `IllegalTransition`, with the recent history, for a verb that the module cannot take now. A
    request for the present state is no mistake: it may be a retry after a lost answer."""
    failed = record.phase is ModulePhase.FAILED
    paused = record.intent is ModuleIntent.PAUSED
    rule = VERBS[verb]
    if rule.failed not in (None, failed) or rule.paused not in (None, paused):
        where = "PAUSED" if paused and not failed else record.phase.name
        raise IllegalTransition(
            subject(record), where, verb.value, recent(record), hint=_instead(record, verb)
        )


def _instead(record: PackageRecord, verb: Verb) -> str:
    """The next step after a verb that was refused."""
    if record.phase is ModulePhase.FAILED:
        return f"`corral module recover {record.id}` comes first, or `corral module uninstall {record.id}`"
    nothing = f"there is nothing to {verb.value}"
    if record.intent is ModuleIntent.PAUSED:
        use = f"`corral module resume {record.id}` lets it run"
        return use if verb is Verb.ACTIVATE else f"{nothing}: it is paused, and {use}"
    if record.intent is ModuleIntent.INACTIVE:
        return f"{nothing}: it is deactivated, and `corral module activate {record.id}` lets it run"
    return f"{nothing}: it is {record.phase.name}"


def wanting(record: PackageRecord, intent: ModuleIntent, *, paused_reason: str = "") -> PackageRecord:
    """The record with another intent; the phase follows by itself."""
    return msgspec.structs.replace(record, intent=intent, paused_reason=paused_reason)


def not_installed(id: str, known: Sequence[str]) -> Rejected:
    listed = ", ".join(sorted(known)[:20]) or "none"
    return Rejected(Code.NOT_FOUND, f"module '{id}' is not installed", hint=f"installed: {listed}")


# --- deaths --------------------------------------------------------------------------------------


def restart_delay(
    deaths: Sequence[float], *, now: float, mended: int, steps: Sequence[float]
) -> float | None:
    """Seconds until a process that died is started again, by the times of its deaths (the last included);
    None when it died too often within the window and an operator has to act."""
    count = sum(1 for at in deaths if now - at < DEATHS_WINDOW)
    if count > mended:
        return None
    return steps[min(count, len(steps)) - 1] if count else 0.0
