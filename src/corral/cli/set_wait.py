"""`corral apply --wait`: until each group of a set has what it wants, and what each has at the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandFailure, CommandRefused, WaitRanOut
from corral.cli.group_scaling import wants_more
from corral.cli.group_waits import GROUPS, counts_of, group_state, status_of
from corral.cli.instance.waits import console_end, look_until
from corral.cli.terminal.output import Column, Item, list_table, state_column
from corral.errors import counted

GONE: Final = "GONE"
ABSTRACT: Final = "ABSTRACT"
UNKNOWN: Final = "UNKNOWN"
_ASKED_ONE_BY_ONE: Final = 10
_EXPLAINED: Final = 20
_LINES: Final = 10
_FEW: Final = 3
"""Lines of a console: of one group, and of each of several."""
_COLUMNS: Final = (
    Column("NAME", "name"),
    state_column("STATE", "state"),
    Column("READY", lambda each: f"{each['ready']}/{each['wanted']}"),
    Column("REASON", "reason", rank=1, stretched=True),
)


class SetWait:
    """The groups of an applied set, as they were seen last."""

    def __init__(self, session: ApiSession, answer: Mapping[str, Any]) -> None:
        self._session = session
        self._deleted = {str(each["name"]) for each in answer["groups"] if each["action"] == "deleted"}
        self._names = [str(each["name"]) for each in answer["groups"]]
        self._seen: dict[str, Item | None] = {}
        self._left = list(self._names)
        """Those that did not have what they want when they were looked at last."""
        self._consoles: dict[str, list[str]] = {}
        """By group that was explained, how the console of the run ends whose crash paused it."""

    def run(self, timeout: int) -> None:
        """Wait. WaitRanOut: groups are short, with the reason of each. CommandRefused: some cannot have what they want,
        all others have."""
        try:
            look_until(self._look, timeout=timeout, what="not all groups had what they want")
        except WaitRanOut:
            short = [*self._left, *(name for name in self._names if self._failure(name))]
            raise WaitRanOut(
                f"{self._share(short)} did not have what {_it(short)} within {counted(timeout, 'second')}:{self._lines(short)}",
                hint=f"what was applied stays, and goes on; corral why {short[0]}",
            ) from None
        if failed := [name for name in self._names if self._failure(name)]:
            raise CommandRefused(
                f"{self._share(failed)} cannot have what {_it(failed)}:{self._lines(failed)}",
                hint=f"what was applied stays; corral why {failed[0]}; "
                f"correct the document and apply it again; to try it again as it is: corral group unpause {failed[0]}",
                code="CRASH_LOOP",
            )

    def _share(self, names: Sequence[str]) -> str:
        return f"{len(names)} of {counted(len(self._names), 'group')}"

    def _look(self) -> tuple[bool, str]:
        """Those that were short; when none is any more, all of them once again."""
        self._fetch(self._left)
        self._left = [name for name in self._left if not self._settled(name)]
        if not self._left and len(self._names) > 1:
            self._fetch(self._names)
            self._left = [name for name in self._names if not self._settled(name)]
        if not self._left:
            return True, ""
        met = len(self._names) - len(self._left)
        of_all = counted(len(self._names), "group is", "groups are")
        return False, f"{met} of {of_all} as wanted; {self._progress(self._left[0])}"

    def _fetch(self, names: Collection[str]) -> None:
        client = self._session.client
        if len(names) > _ASKED_ONE_BY_ONE:
            found = {str(each["name"]): each for each in client.pages(GROUPS)}
            self._seen |= {name: found.get(name) for name in names}
            return
        for name in names:
            try:
                self._seen[name] = client.get(f"{GROUPS}/{segment(name)}")
            except CommandRefused as refusal:
                if refusal.code != "NOT_FOUND":
                    raise
                self._seen[name] = None

    def _settled(self, name: str) -> bool:
        """Whether there is nothing to wait for: it has what it wants, it is held or given up, or gone."""
        group = self._seen[name]
        if group is None:
            return True
        status = status_of(group)
        if status.get("deleting"):
            return False
        if group.get("abstract") or status.get("hold") or status.get("paused"):
            return True
        return bool(status.get("instances") == status.get("wanted") == status.get("ready"))

    def _failure(self, name: str) -> bool:
        """Whether waiting has ended without what it wants. A hold is somebody's wish; a crash loop is not."""
        return self._state(name) in ("PAUSED", GONE) and name not in self._deleted

    def _state(self, name: str) -> str:
        if name not in self._seen:
            return UNKNOWN
        group = self._seen[name]
        if group is None:
            return GONE
        return ABSTRACT if group.get("abstract") else group_state(group)

    def _progress(self, name: str) -> str:
        group = self._seen[name] or {}
        status = status_of(group)
        if status.get("deleting"):
            return f"'{name}' is being deleted, {counted(status.get('instances', 0), 'instance')} left"
        seen = f"'{name}' {counts_of(group)} ready"
        return f"{seen}, {status['reason']}" if status.get("reason") else seen

    def _lines(self, names: Sequence[str]) -> str:
        """A line for each of the groups: of the first ones why."""
        lines = [self._why(name, most=_LINES if len(names) == 1 else _FEW) for name in names[:_EXPLAINED]]
        if len(names) > _EXPLAINED:
            lines.append(f"and {len(names) - _EXPLAINED} more: corral group list")
        return "".join(f"\n  {each}" for each in lines)

    def _why(self, name: str, *, most: int) -> str:
        """Why a group is short, with the last lines of the crash that it was given up for."""
        if self._seen.get(name) is None:
            return f"group '{name}' is gone: it was deleted meanwhile"
        try:
            found = self._session.client.get(f"{GROUPS}/{segment(name)}/why")
        except CommandFailure:
            found = {}  # that time is up counts more
        self._consoles[name] = [line for each in found.get("now", ()) for line in each.get("lines", ())]
        summary = str(found.get("summary") or f"group {self._progress(name)}")
        return " ".join(summary.split()) + console_end(self._consoles[name][-most:], indent="  ")

    def result(self) -> dict[str, Any]:
        """What each group has, for programs."""
        return {"met": not self._left and not any(map(self._failure, self._names)), "groups": self._items()}

    def _items(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "state": self._state(name),
                **{key: status.get(key, 0) for key in ("wanted", "instances", "ready")},
                "reason": self._remark(name),
                "lines": self._consoles.get(name, []),
            }
            for name in self._names
            for status in [status_of(self._seen.get(name) or {})]
        ]

    def _remark(self, name: str) -> str:
        status = status_of(self._seen.get(name) or {})
        if hold := status.get("hold"):
            return f"held by {hold.get('by')}: {hold.get('reason')}"
        if self._state(name) == ABSTRACT:
            return "it has no instances: others inherit it"
        if self._state(name) == "MET" and not status.get("wanted"):
            return f"it wants none: {wants_more(self._seen.get(name) or {})}"
        return str((status.get("paused") or {}).get("reason") or status.get("reason") or "")

    def table(self) -> str:
        """What each group has, for people."""
        return list_table(self._items(), _COLUMNS)


def _it(names: Sequence[str]) -> str:
    return "it wants" if len(names) == 1 else "they want"
