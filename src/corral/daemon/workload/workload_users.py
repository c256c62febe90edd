"""Users of workloads: which one each workload runs as.

A daemon of root never runs a workload under its own uid, unless its operator configured that, and uses only the
accounts that its configuration lists. A daemon that is not root has no other uid to assign, and logs once what that
means.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.workload.isolated_uids import ETC, IsolatedUids, describe
from corral.errors import Code, Rejected
from corral.system.accounts import LONGEST_NAME, find_account, find_group, is_id, name_of
from corral.system.daemon_config import InstancesSection

AUTO: Final = "auto"
UID: Final = "uid"
_FEW: Final = 64
_log = structlog.get_logger("corral.daemon.workload")


class WorkloadUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a workload. `run_as` is empty when that is the daemon's own user."""

    run_as: str
    name: str
    uid: int
    gid: int
    home: str
    """Empty: the working directory."""
    groups: tuple[int, ...] = ()
    """Supplementary groups, of those that its account is in."""
    isolated: bool = False
    """No other workload has this uid."""


class WorkloadUsers:
    """Chooses the user of each run. Methods block: the account database may be across a network. They may be called by
    several threads."""

    def __init__(self, settings: InstancesSection, *, data: pathlib.Path, etc: pathlib.Path = ETC) -> None:
        self._settings = settings
        self._own = os.geteuid()
        self._isolated = IsolatedUids(settings.first_uid, settings.last_uid, data=data, etc=etc)

    def warn(self) -> None:
        """Log once, at the start, what an operator should know about the users of workloads."""
        if self._settings.development:
            _log.warning(
                "development_profile.used",
                user=name_of(self._own),
                meaning="workloads run as the daemon's own user and can read its key",
            )
        elif self._own:
            _log.warning(
                "own_user.used",
                user=name_of(self._own),
                meaning="the daemon is not root: workloads run as its own user and can read its key",
            )
        else:
            self._warn_as_root()

    def _warn_as_root(self) -> None:
        settings, isolated = self._settings, self._isolated
        lent = dict.fromkeys((settings.run_as, *settings.allowed_users))
        _log.info(
            "workload_users.chosen",
            lent=[*lent, *(["root"] if settings.allow_root else [])],
            groups=list(settings.allowed_groups),
            isolated=f"{settings.first_uid} to {settings.last_uid}",
            usable=isolated.usable,
        )
        if isolated.foreign:
            _log.warning(
                "uids.skipped",
                ids=describe(isolated.foreign[:_FEW]),
                meaning="they belong to somebody else; instances.first_uid and instances.last_uid move the range",
            )
        if isolated.contested:
            _log.warning(
                "shared_uids.found",
                count=len(isolated.contested),
                instances=", ".join(
                    f"{id} ({span.owner})" for id, span in itertools.islice(isolated.contested.items(), _FEW)
                ),
                meaning="their uids were given before and belong to somebody else as well, who can read their files; "
                "stop the daemon and take them out of uids.json: they get others at their next start",
            )
        for name in lent:
            try:
                self._lent(name, named_by_group=False)
            except Rejected as error:
                _log.warning("run_user.refused", user=name, reason=str(error))
        for name in settings.allowed_groups:
            if find_group(name) is None:
                _log.warning("user_group.refused", group=name)

    def choose(self, instance_id: str, *, run_as: str, isolate: str, static: bool = False) -> WorkloadUser:
        """The user of a run. `static`: the instance keeps its directory. RUN_AS_REFUSED, with what to do, when there is
        no such user or it may not be used."""
        if run_as and isolate == UID:
            raise _refused(
                "`isolate: uid` gives each instance a user of its own, so `run_as` has no meaning",
                "leave one of them out",
            )
        isolates = isolate == UID or (isolate == AUTO and self._isolates_by_itself(run_as))
        if self._own or (self._settings.development and not run_as and not isolates):
            return self._own_user(run_as, isolates=isolates)
        if isolates:
            uid = self._isolated.of(instance_id, static=static)
            return WorkloadUser(run_as=str(uid), name=str(uid), uid=uid, gid=uid, home="", isolated=True)
        return self._lent(run_as or self._settings.run_as, named_by_group=bool(run_as))

    def _isolates_by_itself(self, run_as: str) -> bool:
        """Whether `isolate: auto` means an own uid on this node."""
        return self._own == 0 and not self._settings.development and not run_as

    def _lent(self, name: str, *, named_by_group: bool) -> WorkloadUser:
        """An account that this node allows. The node's own configuration may also name a bare number; a group may
        not."""
        found = _find(name)
        if found is None and not named_by_group and is_id(name):
            found = WorkloadUser(run_as=name, name=name, uid=int(name), gid=int(name), home="")
        shown = name[:LONGEST_NAME]
        if found is None and is_id(name):
            raise _refused(
                f"no account of this node has the number '{shown}'",
                "name an account that instances.allowed_users in the daemon's config lists, or leave run_as out",
            )
        if found is None:
            raise _refused(
                f"the user '{shown}' does not exist on this node",
                f"make it: 'useradd --system --no-create-home --shell /usr/sbin/nologin {shown}'",
            )
        if found.uid in self._isolated:
            raise _refused(
                f"the user '{shown}' has uid {found.uid}, which is in the range of isolated instances",
                "name another user, or move instances.first_uid and instances.last_uid in the daemon's config",
            )
        if not self._is_lent(found):
            if found.uid == 0:
                raise _refused(
                    "workloads may not run as root on this node",
                    "name another user in run_as, or set instances.allow_root in the daemon's config",
                )
            raise _refused(
                f"this node does not lend the user '{shown}' to workloads",
                "add it to instances.allowed_users in the daemon's config, or leave run_as out",
            )
        return msgspec.structs.replace(found, groups=self._groups_of(found))

    def _is_lent(self, user: WorkloadUser) -> bool:
        """Whether the account is allowed, by its number, not by its spelling. Root is never allowed by a list, because
        `allow_root` is easier to see."""
        if self._settings.development and user.uid == self._own:
            return True
        if user.uid == 0:
            return self._settings.allow_root
        listed = map(_find, (self._settings.run_as, *self._settings.allowed_users))
        return user.name == self._settings.run_as or any(
            each is not None and each.uid == user.uid for each in listed
        )

    def _groups_of(self, user: WorkloadUser) -> tuple[int, ...]:
        """The groups of the account that the configuration lists, in addition to its own."""
        allowed = {find_group(name) for name in self._settings.allowed_groups}
        if not allowed or user.name == str(user.uid):
            return ()
        return tuple(sorted(gid for gid in os.getgrouplist(user.name, user.gid) if gid in allowed))

    def _own_user(self, run_as: str, *, isolates: bool) -> WorkloadUser:
        own = _find(str(self._own)) or WorkloadUser(
            run_as="", name=str(self._own), uid=self._own, gid=os.getegid(), home=""
        )
        if isolates:
            raise _refused("the daemon is not root and cannot isolate by uid", "run the daemon as root")
        requested = _find(run_as) if run_as else own
        if requested is None or requested.uid != own.uid:
            raise _refused(
                f"the daemon runs as '{own.name}' and cannot become '{run_as[:LONGEST_NAME]}'",
                "run the daemon as root, or leave run_as out",
            )
        return msgspec.structs.replace(own, run_as="")

    def release(self, is_gone: Callable[[str], bool]) -> None:
        """Free the uids of instances that have ended and left nothing here."""
        self._isolated.release(is_gone)


def _find(user: str) -> WorkloadUser | None:
    """An account by name or number; None when there is none."""
    found = find_account(user)
    if found is None:
        return None
    return WorkloadUser(run_as=user, name=found.name, uid=found.uid, gid=found.gid, home=found.home)


def _refused(message: str, hint: str) -> Rejected:
    return Rejected(Code.RUN_AS_REFUSED, message, hint=hint, field="run_as")
