"""`on_instance_starting`: the hook call to all modules of one start, side by side.

Each module gets its own copy, its own deadline, and a share of the time budget of all. An answer that is late,
invalid or missing is dropped whole, and its module is named; the answers of the others count.

A start that waits at the gate for a while reports what it waits for, until the wait is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

import msgspec
import structlog

from corral.daemon.hooks.change_validation import BadChange, check_change, read_answer
from corral.daemon.hooks.start_changes import StartChange, change_record, difference, merge, overridden
from corral.daemon.prepare.prepared_start import Proposal, StartValues, values_of
from corral.domain.modules.records import ModuleChange
from corral.errors import CorralError
from corral.modules.process.call_failures import CallOverrun, ModuleRaised, ProcessGone
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import HOOK_PREFIX, HookAnswer, HookArguments

STARTING: Final = "on_instance_starting"
_MOST_BYTES: Final = 1024 * 1024
"""Of arguments and environment together: beyond about twice of it nothing can be executed."""

_log = structlog.get_logger("corral.daemon.hooks")

_Answer = StartChange | ModuleChange
"""The change a module requested, or the record that it was dropped."""


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """A start after the hooks of its modules were called."""

    values: StartValues
    changes: tuple[ModuleChange, ...] = ()
    """Of each module that changed something, or whose changes were dropped; by module."""
    missing: tuple[str, ...] = ()
    """Modules that were wanted here and not ready, each with why."""


class HookBudget(NamedTuple):
    """How long the modules of one start may take."""

    seconds: float
    budget: float
    """Seconds that the node gives them; a start that is short of time has less."""

    def limit(self, scope: Scope) -> tuple[float, str]:
        """The seconds that this module has, and which limit that is."""
        if scope.hook_deadline <= self.seconds:
            return scope.hook_deadline, "its hookDeadlineMs"
        if self.full:
            return self.seconds, "the node's budget for hooks, modules.hook_budget_seconds"
        return self.seconds, "the start had no more time left, see startup_timeout_seconds of its group"

    @property
    def full(self) -> bool:
        return self.seconds >= self.budget


async def call_start_hooks(scopes: Sequence[Scope], proposal: Proposal, patience: HookBudget) -> Tuning:
    """Never takes longer than it may, and never raises for what a module does. Cancelled, it cancels
    the calls."""
    original = values_of(proposal.spec)
    question = HookArguments(values={"spec": msgspec.to_builtins(proposal.spec)})
    async with asyncio.TaskGroup() as group:
        asked = {
            scope: group.create_task(
                _call_one(scope, question, original, proposal, patience),
                name=f"hooks/starting/{proposal.spec.instance_id}/{scope.module_id}",
            )
            for scope in scopes
        }
    return _merged(original, {scope: task.result() for scope, task in asked.items()})


def _merged(original: StartValues, answers: dict[Scope, _Answer]) -> Tuning:
    """Merged in the order of ids; a change that would make the whole too large to be executed is dropped."""
    taken: dict[str, StartChange] = {}
    changes: list[ModuleChange] = []
    size = _size(original)
    for scope, answer in sorted(answers.items(), key=lambda pair: pair[0].module_id):
        if isinstance(answer, StartChange) and answer:
            added = _added(answer)
            if size + added > _MOST_BYTES:
                answer = _dropped(scope, "with it arguments and environment would be larger than 1 MiB")
            else:
                size += added
                taken[scope.module_id] = answer
                changes.append(change_record(scope.module_id, scope.version, original, answer))
        if isinstance(answer, ModuleChange):
            changes.append(answer)
    if not taken:
        return Tuning(values=original, changes=tuple(changes))
    lost = overridden(original, taken)
    return Tuning(
        values=merge(original, taken),
        changes=tuple(
            msgspec.structs.replace(each, overridden=lost.get(each.module, ())) for each in changes
        ),
    )


async def _call_one(
    scope: Scope, question: HookArguments, original: StartValues, proposal: Proposal, patience: HookBudget
) -> _Answer:
    seconds, limit = patience.limit(scope)
    try:
        answer = await scope.call(
            STARTING,
            HOOK_PREFIX + STARTING,
            question,
            answer=HookAnswer,
            deadline=seconds,
            # All are asked at the same moment: who uses up the whole budget was late by itself. Only what a
            # start cuts short, for want of time, counts against no module.
            blame=patience.full or scope.hook_deadline <= seconds,
        )
        change = difference(original, read_answer(answer.value, original))
        check_change(change, proposal.rules, proposal.secrets)
    except BadChange as bad:
        return _dropped(scope, str(bad))
    except CorralError as error:
        return _dropped(scope, _why(error, f"{seconds:.3g} s ({limit})"))
    except Exception:  # one answer that we cannot cope with costs no other module its own
        _log.exception("hook_answer.failed", module=scope.module_id)
        return _dropped(scope, "its answer could not be checked")
    _log.debug("hook.answered", module=scope.module_id, hook=STARTING)
    return change


def _why(error: CorralError, limit: str) -> str:
    match error:
        case CallOverrun():
            return f"it did not answer within {limit}"
        case ProcessGone():
            return f"its process ended ({error.death.reason})"
        case ModuleRaised():
            return f"it raised {error.kind}: {error.detail}"
        case _:
            return str(error)


def _dropped(scope: Scope, why: str) -> ModuleChange:
    return ModuleChange(module=scope.module_id, version=scope.version, dropped=why)


def _size(values: StartValues) -> int:
    return sum(map(_bytes, (*values.jvm_args, *values.args, *values.env, *values.env.values())))


def _added(change: StartChange) -> int:
    words = (*change.jvm_args.words, *change.args.words, *change.env_set, *change.env_set.values())
    return sum(map(_bytes, words))


def _bytes(word: str) -> int:
    return len(word.encode(errors="surrogatepass")) + 1


_LASTS_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 1.0
_MOST_NAMED: Final = 5


class WaitNotice:
    """Use as `with`. `awaited` names what is waited for; `report` is called with it as one text when the wait lasts,
    again when it changes, and with an empty one at the end if there was any."""

    def __init__(self, awaited: Callable[[], tuple[str, ...]], report: Callable[[str], None]) -> None:
        self._awaited = awaited
        self._report = report
        self._reported = ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._look_in(_LASTS_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reported:
            self._report("")

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._look_in(_AGAIN_SECONDS)
        text = waiting_text(self._awaited())
        if text != self._reported:
            self._reported = text
            self._report(text)


def waiting_text(awaited: tuple[str, ...]) -> str:
    """Short, however many there are."""
    if not awaited:
        return "waiting for modules: they are being started or changed"
    more = len(awaited) - _MOST_NAMED
    named = "; ".join(awaited[:_MOST_NAMED])
    return f"waiting for modules: {named}" + (f"; and {more} more" if more > 0 else "")
