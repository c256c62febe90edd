"""Checks of changed group documents against all that are stored, without holding up the loop: what needs no state is done
by a thread, the rest in slices. What others change meanwhile makes it begin again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from corral.controller.instances.group_writes import StoredGroups, documents_of, stored_groups
from corral.controller.instances.plan_checks import PlanChecks
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.group import GroupSpec
from corral.errors import Code, Rejected, Retryable, counted

T = TypeVar("T")

MOST_REWRITTEN: Final = 16 * 1024 * 1024
"""Bytes of the groups that one change may write, with all that they inherit."""
ATTEMPTS: Final = 3


class CheckedDocuments(NamedTuple, Generic[T]):
    """What was found, and a transaction without changes in which it is true until the next await."""

    ws: Workspace
    plans: PlanChecks
    found: T


class DocumentChecks:
    """The checks of one request, over all of its attempts. The lock of documents is held."""

    def __init__(
        self,
        workspace: Callable[[], Workspace],
        *,
        attempts: int = ATTEMPTS,
        most: int | None = MOST_REWRITTEN,
    ) -> None:
        """`most`: bytes of changed groups; None: any number."""
        self._workspace = workspace
        self._allowed = attempts
        self._most = most
        self._attempts = 0

    async def run(
        self, check: Callable[[StoredGroups], T], specs: Callable[[T], Iterable[GroupSpec]]
    ) -> CheckedDocuments[T]:
        """`check` is pure and called in a thread; `specs` are the groups of its result, those that are as they were among
        them. CONFLICT when others changed something at each attempt, BODY_TOO_LARGE."""
        while self._attempts < self._allowed:
            self._attempts += 1
            ws = self._workspace()
            stored = stored_groups(ws)
            found, changed = await asyncio.to_thread(self._checked, check, specs, stored)
            plans = PlanChecks(ws)
            await plans.look_ahead(changed)
            if plans.valid and documents_of(ws) == stored.documents:
                return CheckedDocuments(ws, plans, found)
        raise Retryable(
            Code.CONFLICT,
            f"others changed the same groups {self._allowed} times while this was tried",
            hint="try again",
            retry_after=1.0,
        )

    def _checked(
        self,
        check: Callable[[StoredGroups], T],
        specs: Callable[[T], Iterable[GroupSpec]],
        stored: StoredGroups,
    ) -> tuple[T, list[GroupSpec]]:
        """The result, and the groups of it that are new or not as they are stored."""
        found, known = check(stored), stored.records
        changed = [each for each in specs(found) if each.name not in known or known[each.name].spec != each]
        if self._most is not None:
            _refuse_more(changed, self._most)
        return found, changed


def _refuse_more(specs: Collection[GroupSpec], most: int) -> None:
    size = sum(len(msgspec.json.encode(each)) for each in specs)
    if size > most:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"this would write {counted(len(specs), 'group')} of {size / 2**20:.1f} MiB in all, with what they inherit; "
            f"one change has at most {most >> 20} MiB",
            hint="shorten what they inherit (long values belong into files of a template), or change fewer at once",
        )
