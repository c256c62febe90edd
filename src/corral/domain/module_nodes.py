"""How modules stand on nodes, and what they made of the starts of instances there."""

from __future__ import annotations

import datetime as dt
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.module_records import WAITING_FOR
from corral.domain.module_phases import ModuleIntent, ModulePhase
from corral.domain.records import Record

_DAY_MS: Final = 86_400_000


class NodeModuleState(Record, frozen=True, kw_only=True):
    """A module on one node, as the node told last. `version` and `sha256` are what it has there, which is not
    the installed one where a new version did not come up (then `refused_sha256` names that)."""

    node: NodeId
    module: str
    phase: ModulePhase
    version: str
    sha256: str
    intent: ModuleIntent
    reason: str = ""
    error: str = ""
    refused_sha256: str = ""
    recover_asked_ms: int = 0
    """When an operator last asked for another try there; it is told until the node has carried it out."""
    recover_done_ms: int = 0
    """The last such wish that the node carried out."""
    reload_done_ms: int | None = None
    """The last reload that it carried out; None: its daemon does not count them."""
    updated_at: dt.datetime

    @property
    def recover_owed_ms(self) -> int:
        """The wish for another try that is not carried out yet; 0: none."""
        return self.recover_asked_ms if self.recover_asked_ms > self.recover_done_ms else 0


def awaited_capability(row: NodeModuleState) -> str:
    """The capability that a module waits for on a node, the first of them; empty: it waits for none."""
    waits = row.phase is ModulePhase.WAITING and row.reason.startswith(WAITING_FOR)
    return row.reason.removeprefix(WAITING_FOR) if waits else ""


def next_wish(now: dt.datetime, asked_ms: int, *done_ms: int) -> int:
    """The moment that names a wish of an operator, in milliseconds: later than the one that was asked for before,
    and than what nodes have carried out, whatever clocks say: nodes may know of more than a store that was put
    back. What lies more than a day ahead is no moment at which anybody asked."""
    present = int(now.timestamp() * 1000)
    believed = [each for each in done_ms if each < present + _DAY_MS]
    return max(present, asked_ms + 1, *(each + 1 for each in believed))


def node_module_key(node: str, module: str) -> str:
    """The id of a node's state of a module in the store."""
    return f"{node}/{module}"


class Overridden(Record, frozen=True, kw_only=True):
    """Something that a module wanted, and that does not hold: another had the last word on it."""

    kind: str
    """`env` or `jvm_args`."""
    name: str
    """Of the variable; of `jvm_args` the argument as it was added."""
    by: str = ""
    """The module whose wish holds; empty: the plan has it so."""


class ModuleChange(Record, frozen=True, kw_only=True):
    """What a module on the node made of one start. With `dropped` nothing of it was taken, and that says why."""

    module: str
    version: str = ""
    jvm_args_added: tuple[str, ...] = ()
    jvm_args_removed: tuple[str, ...] = ()
    args_added: tuple[str, ...] = ()
    args_removed: tuple[str, ...] = ()
    env_set: tuple[str, ...] = ()
    """Names alone: values may be secrets."""
    env_removed: tuple[str, ...] = ()
    overridden: tuple[Overridden, ...] = ()
    """Of these changes, those that do not hold."""
    dropped: str = ""
