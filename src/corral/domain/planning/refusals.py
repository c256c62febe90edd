"""Why a node cannot take a run: codes with numbers, and the sentences that people read.

Only codes and numbers are stored with decisions; the sentence is made when a decision is read.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from corral.domain.decisions import Alternative, Numbers
from corral.domain.node_states import EMPTIED
from corral.errors import Code, Rejected, counted

_LISTED: Final = 20


class RefusalCode(enum.StrEnum):
    """Why a node cannot take a run, in the order of the checks: the first that fails is the reason."""

    STATE = "STATE"
    RECONNECTING = "RECONNECTING"
    ADMISSION = "ADMISSION"
    CHOICE = "CHOICE"
    LABELS = "LABELS"
    RUNTIME = "RUNTIME"
    CAPABILITY = "CAPABILITY"
    AFFINITY = "AFFINITY"
    SKEW = "SKEW"
    MEMORY = "MEMORY"
    CPU = "CPU"
    DISK = "DISK"
    PORTS = "PORTS"


NEVER: Final = frozenset(
    {RefusalCode.CHOICE, RefusalCode.LABELS, RefusalCode.RUNTIME, RefusalCode.CAPABILITY}
)
"""What no other run's end changes: such a node never takes the group as both are now."""
_ROOM: Final = frozenset({RefusalCode.MEMORY, RefusalCode.CPU, RefusalCode.DISK, RefusalCode.PORTS})
_UNLABELLED: Final = "without the label that it is spread by"
LOWER: Final = "LOWER"
"""Of a node that can take the run and has a lower score."""
TIE: Final = "TIE"
"""Of a node with the same score, that the hash did not choose."""
_COUNTED: Final[Mapping[RefusalCode, str]] = {
    RefusalCode.STATE: "not connected",
    RefusalCode.RECONNECTING: "reconnecting",
    RefusalCode.ADMISSION: "takes nothing new",
    RefusalCode.CHOICE: "not among the nodes it may run on",
    RefusalCode.LABELS: "other labels",
    RefusalCode.RUNTIME: "lacks the runtime",
    RefusalCode.CAPABILITY: "lacks a capability",
    RefusalCode.AFFINITY: "against its affinity",
    RefusalCode.SKEW: "too many of it there",
    RefusalCode.MEMORY: "not enough memory",
    RefusalCode.CPU: "not enough CPU",
    RefusalCode.DISK: "not enough disk",
    RefusalCode.PORTS: "no free port",
}
_SENTENCES: Final[Mapping[str, str]] = {
    RefusalCode.STATE: "it is {state}",
    RefusalCode.RECONNECTING: "it is reconnecting, and waited for until {until}",
    RefusalCode.ADMISSION: "it is {admission}{because}",
    RefusalCode.CHOICE: "it is not in the group's 'nodes'",
    "LABELS:other": "label '{label}' is '{has}', '{wanted}' is wanted",
    "LABELS:none": "label '{label}' is missing, '{wanted}' is wanted",
    RefusalCode.RUNTIME: "it has no runtime '{runtime}'",
    RefusalCode.CAPABILITY: "it has not proven {missing}",
    "AFFINITY:group": "no instance of group '{wanted}' is there",
    "AFFINITY:label": "it has not the label '{wanted}'",
    "AFFINITY:no_group": "an instance of group '{wanted}' is there",
    "AFFINITY:no_label": "it has the label '{wanted}'",
    "SKEW:label": "{by} '{domain}' has {count}, '{fewest_in}' {fewest}: max_skew is {max_skew}",
    "SKEW:node": "it has {count}, '{fewest_in}' {fewest}: max_skew is {max_skew}",
    "SKEW:none": "label '{by}' is missing, and spread by it has a max_skew",
    RefusalCode.MEMORY: "{needed} MB are wanted, {free} of {total} MB are free: lacks {lacks} MB",
    "MEMORY:limited": "{needed} MB are wanted, {free} of {total} MB are free: lacks {lacks} MB; the host has {host} MB, "
    "an operator limits it to {total}",
    "CPU:limited": "{needed:g} CPUs are wanted, {free:g} of {total:g} are free: lacks {lacks:g}; the host has {host:g}, "
    "an operator limits it to {total:g}",
    RefusalCode.CPU: "{needed:g} CPUs are wanted, {free:g} of {total:g} are free: lacks {lacks:g}",
    "DISK:known": "{needed} MB of disk are wanted, {free} MB are free: lacks {lacks} MB",
    "DISK:unknown": "{needed} MB of disk are wanted, and it has not reported how much is free",
    LOWER: "scores {score:.6f}, less than {best:.6f}",
    f"{LOWER}:bound": "could score {score:.6f} at most, less than {best:.6f}",
    TIE: "scores {score:.6f} as well; of equal ones a hash chooses",
}


def sentence(code: str, numbers: Numbers) -> str:
    """A refusal for people; `numbers` as its maker filled them in. A code of a newer version is shown as it is."""
    if code == RefusalCode.PORTS:
        return str(numbers.get("taken", "no port is free"))
    pattern = _SENTENCES.get(f"{code}:{numbers.get('kind', '')}") or _SENTENCES.get(code)
    if pattern is None:
        return code.lower()
    because = f": {numbers['reason']}" if numbers.get("reason") else ""
    try:
        return pattern.format(**{**numbers, "because": because})
    except (KeyError, ValueError, IndexError):
        return code.lower()


class NodeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one node cannot take a run."""

    node: str
    code: RefusalCode
    numbers: Numbers = {}

    @property
    def reason(self) -> str:
        return sentence(self.code, self.numbers)

    @property
    def waits_for_report(self) -> bool:
        """Has the node just connected, and not reported yet what this is about?"""
        return self.code is RefusalCode.DISK and self.numbers.get("kind") == "unknown"

    def alternative(self) -> Alternative:
        """As a decision stores it."""
        return Alternative(subject=f"node/{self.node}", code=self.code, numbers=self.numbers)


class PlacementRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """No node can take a run."""

    code: Code
    summary: str
    """Counts by code: it changes only when something relevant does."""
    refusals: tuple[NodeRefusal, ...] = ()
    cause: Rejected | None = None
    """No node was checked: there is no plan, for this reason."""

    @classmethod
    def without_plan(cls, error: Rejected) -> PlacementRefusal:
        """Something that the group's document names does not exist, or does not fit together."""
        return cls(code=error.code, summary=error.message, cause=error)

    @classmethod
    def without_number(cls, error: Rejected) -> PlacementRefusal:
        """There is no number left for another start."""
        return cls(code=error.code, summary=f"{error.message}; {error.hint}", cause=error)

    @classmethod
    def claimed(cls, id: str, node: str) -> PlacementRefusal:
        """A node lists a run of the id that nothing proves to be the cluster's: a second one is not started
        beside it."""
        error = Rejected(
            Code.CONFLICT,
            f"node '{node}' runs '{id}' already, and nothing proves that it was started by us",
            hint=f"end it on '{node}' and restart the daemon there, or revoke that node",
        )
        return cls(code=error.code, summary=error.message, cause=error)

    @classmethod
    def by_nodes(cls, refusals: Sequence[NodeRefusal]) -> PlacementRefusal:
        """Every node was checked, and each has a reason."""
        counts = count_codes(refusals)
        codes = _counted(refusals)
        reachable = counts.keys() - {RefusalCode.STATE, RefusalCode.RECONNECTING, RefusalCode.CHOICE}
        return cls(
            code=Code.PORT_RANGE_EXHAUSTED if reachable == {RefusalCode.PORTS} else Code.NO_CAPACITY,
            summary=f"of {counted(len(refusals), 'node')}: {codes}"
            if refusals
            else "there is no node; enrol one",
            refusals=tuple(sorted(refusals, key=lambda refusal: refusal.node)),
        )

    def at_home(self, id: str, home: str) -> PlacementRefusal:
        """The same, for an instance whose directory is on one node: other nodes do not matter."""
        own = tuple(each for each in self.refusals if each.node == home)
        # The free amounts change constantly, and are left out.
        reasons = "; ".join(_COUNTED[each.code] if each.code in _ROOM else each.reason for each in own)
        return PlacementRefusal(
            code=self.code,
            summary=f"the directory of '{id}' is on node '{home}': {reasons}; wait for that node, "
            "or delete the instance to begin anew elsewhere",
            refusals=own,
        )

    def returning(self) -> list[str]:
        """The nodes that would take it, and are waited for."""
        return [each.node for each in self.refusals if each.code is RefusalCode.RECONNECTING]

    def emptied(self) -> list[str]:
        """The nodes that take nothing because they are emptied, where no other could ever take it."""
        if any(each.code is not RefusalCode.ADMISSION and each.code not in NEVER for each in self.refusals):
            return []
        closed = [each for each in self.refusals if each.code is RefusalCode.ADMISSION]
        drained = [each.node for each in closed if each.numbers.get("admission") in EMPTIED]
        return drained if len(drained) == len(closed) else []

    def error(self, group: str) -> Rejected:
        if self.cause is not None:
            return Rejected(
                self.code, f"group '{group}' cannot be started: {self.summary}", hint=self.cause.hint
            )
        reasons = listed_refusals(self.refusals)
        return Rejected(
            self.code,
            f"no node can take an instance of group '{group}'" + (f" ({reasons})" if reasons else ""),
            hint=self.summary,
        )


def listed_refusals(refusals: Sequence[NodeRefusal]) -> str:
    """Each node with its reason, for people."""
    reasons = "; ".join(f"{each.node}: {each.reason}" for each in refusals[:_LISTED])
    more = len(refusals) - _LISTED
    return reasons + (f"; and {more} more" if more > 0 else "")


def count_codes(refusals: Iterable[NodeRefusal]) -> dict[str, int]:
    """How many nodes were refused, by code."""
    return dict(collections.Counter(refusal.code for refusal in refusals))


def _counted(refusals: Iterable[NodeRefusal]) -> str:
    """How many nodes were refused, by reason, for people."""
    found = collections.Counter((each.code, _kind(each)) for each in refusals)
    ordered = [(code, kind) for code in RefusalCode for kind in ("", _UNLABELLED) if found[code, kind]]
    return ", ".join(f"{found[key]} {key[1] or _COUNTED[key[0]]}" for key in ordered)


def _kind(refusal: NodeRefusal) -> str:
    return _UNLABELLED if refusal.code is RefusalCode.SKEW and refusal.numbers.get("kind") == "none" else ""


def listed_nodes(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return f"node {shown}" if len(names) == 1 else f"nodes {shown}" + (", …" if len(names) > 3 else "")
