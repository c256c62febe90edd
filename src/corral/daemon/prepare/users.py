"""Under which user a workload runs.

A daemon that is root never lends its own uid to a workload, unless its operator said so. One that is
not root has no other uid to give, and says once what that means.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import threading
from typing import Final

import msgspec
import structlog

from corral.daemon.durable import store
from corral.errors import Code, Rejected
from corral.system.config_schema import InstancesSection
from corral.system.files import read_versioned

_FILE: Final = "uids.json"
_FORMAT: Final = "corral-instance-uids"
_VERSION: Final = 1
_log = structlog.get_logger("corral.daemon.supervise")


class WorkloadUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who a workload is. `run_as` is empty when that is the daemon's own user."""

    run_as: str
    name: str
    uid: int
    gid: int
    home: str
    """Empty: the working directory."""


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    uids: dict[str, int] = {}


class WorkloadUsers:
    """Chooses the user of each run."""

    def __init__(self, settings: InstancesSection, *, data: pathlib.Path) -> None:
        self._settings = settings
        self._own = os.geteuid()
        self._path = data / _FILE
        self._choosing = threading.Lock()
        self._uids = dict(
            (read_versioned(self._path, _Given, name=_FORMAT, version=_VERSION) or _Given()).uids
        )

    def warn(self) -> None:
        """Once, at the start: what an operator should know about the users of workloads."""
        if self._settings.development:
            _log.warning(
                "instances.development_profile",
                user=_name(self._own),
                meaning="workloads run as the daemon's own user and can read its key",
            )
        elif self._own:
            _log.warning(
                "instances.own_user",
                user=_name(self._own),
                meaning="the daemon is not root: workloads run as its own user and can read its key",
            )

    def choose(self, instance_id: str, *, run_as: str, isolate: str) -> WorkloadUser:
        """RUN_AS_REFUSED, with what to do, when there is no such user or it may not be used. Blocks: who
        knows the users may be across a network. May be called by several threads."""
        with self._choosing:
            return self._choose(instance_id, run_as=run_as, isolate=isolate)

    def _choose(self, instance_id: str, *, run_as: str, isolate: str) -> WorkloadUser:
        if self._own or (self._settings.development and not run_as and isolate != "uid"):
            return self._own_user(run_as, isolate)
        if isolate == "uid":
            return self._isolated(instance_id)
        wanted = run_as or self._settings.run_as
        found = _find(wanted)
        if found is None:
            raise _refused(
                f"the user '{wanted}' does not exist on this node",
                f"make it: 'useradd --system --no-create-home --shell /usr/sbin/nologin {wanted}'",
            )
        if found.uid == 0 and not self._settings.allow_root and not self._settings.development:
            raise _refused(
                "workloads may not run as root on this node",
                "name another user in run_as, or set instances.allow_root in the daemon's config",
            )
        return found

    def _own_user(self, run_as: str, isolate: str) -> WorkloadUser:
        own = _find(str(self._own)) or WorkloadUser(
            run_as="", name=str(self._own), uid=self._own, gid=os.getegid(), home=""
        )
        if isolate == "uid":
            raise _refused("the daemon is not root and cannot isolate by uid", "run the daemon as root")
        wanted = _find(run_as) if run_as else own
        if wanted is None or wanted.uid != own.uid:
            raise _refused(
                f"the daemon runs as '{own.name}' and cannot become '{run_as}'",
                "run the daemon as root, or leave run_as out",
            )
        return msgspec.structs.replace(own, run_as="")

    def _isolated(self, instance_id: str) -> WorkloadUser:
        """The same uid for the same instance, always: its static files belong to it."""
        uid = self._uids.get(instance_id)
        if uid is None:
            uid = self._next_uid()
            self._store({**self._uids, instance_id: uid})
        return WorkloadUser(run_as=str(uid), name=str(uid), uid=uid, gid=uid, home="")

    def _next_uid(self) -> int:
        first, last = self._settings.first_uid, self._settings.last_uid
        used = set(self._uids.values())
        for uid in range(first, last + 1):
            if uid not in used:
                return uid
        raise _refused(
            f"all user ids from {first} to {last} belong to instances",
            "raise instances.last_uid in the daemon's config",
        )

    def forget(self, instance_id: str) -> None:
        """Nothing of this instance is left here: its uid may go to another. Blocks."""
        with self._choosing:
            if instance_id in self._uids:
                self._store({id: uid for id, uid in self._uids.items() if id != instance_id})

    def _store(self, uids: dict[str, int]) -> None:
        """On disk first: a uid is given to nobody before that, and to nobody else after."""
        store(self._path, _Given(uids=uids), name=_FORMAT, version=_VERSION)
        self._uids = uids


def _find(user: str) -> WorkloadUser | None:
    """By name or number; a number without an account stands for itself."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        if not user.isdecimal():
            return None
        return WorkloadUser(run_as=user, name=user, uid=int(user), gid=int(user), home="")
    return WorkloadUser(
        run_as=user, name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir
    )


def _name(uid: int) -> str:
    found = _find(str(uid))
    return found.name if found else str(uid)


def _refused(message: str, hint: str) -> Rejected:
    return Rejected(Code.RUN_AS_REFUSED, message, hint=hint, field="run_as")
