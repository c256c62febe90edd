"""Selection of the control group adapter for this machine."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
from collections.abc import Callable
from typing import Final

from corral.errors import Code, CorralError, Rejected, unknown_choice
from corral.runtimes.cgroups import control_files
from corral.runtimes.cgroups.control_files import Hierarchies, mounted_hierarchies, own_groups
from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.cgroups.systemd import SystemdCgroups, open_systemd, systemd_is_pid_1
from corral.runtimes.cgroups.v1 import SeparateCgroups
from corral.runtimes.cgroups.v2 import UnifiedCgroups

CHOICES: Final = ("auto", "systemd", "v2", "v1", "none")
DEFAULT_ROOT: Final = "corral"
_FIELD: Final = "instances.cgroups"
_ROOT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_LIMITING: Final = ("memory", "cpu", "pids")


def owner_of(directory: str) -> str:
    """A short name for a daemon's data directory: runs of two daemons on one machine may have equal names,
    and one daemon must never take the other's runs for its own leftovers."""
    return hashlib.sha256(str(pathlib.Path(directory).resolve()).encode()).hexdigest()[:12]


def open_cgroups(choice: str, root: str, *, owner: str = "") -> Cgroups:
    """The adapter of this choice; `auto` takes the best that works on this machine. `root` is a path within
    the hierarchy (empty: `corral`), `owner` see `owner_of`. Blocks for milliseconds, and for seconds when a
    bus does not answer. `Rejected` gives the reason when a choice does not work here."""
    if choice not in CHOICES:
        raise unknown_choice(
            "kind of control groups", choice, CHOICES, code=Code.INVALID_CONFIG, field=_FIELD
        )
    root = root.strip("/") or DEFAULT_ROOT
    if _ROOT.fullmatch(root) is None:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"'{root}' is no path of a control group",
            hint="use names of letters, digits, '.', '_' and '-', joined by '/'",
            field="instances.cgroup_root",
        )
    mounted = mounted_hierarchies()
    beneath = f"{root}/{owner}" if owner else root
    openers: dict[str, Callable[[], Cgroups]] = {
        "systemd": lambda: _open_systemd(mounted, owner),
        "v2": lambda: _open_v2(mounted, beneath),
        "v1": lambda: _open_v1(mounted, beneath),
        "none": lambda: NoCgroups(owner),
    }
    if choice != "auto":
        return openers[choice]()
    for name in _candidates(mounted):
        try:
            return openers[name]()
        except CorralError:
            continue
    return NoCgroups(owner)


def _candidates(mounted: Hierarchies) -> list[str]:
    """The adapters to try, in order: v1 before a v2 tree that has no controllers while v1 has them."""
    order = ["systemd", "v2", "v1"]
    on_v2 = (
        control_files.read_text(f"{mounted.unified}/cgroup.controllers").split() if mounted.unified else []
    )
    if not any(name in on_v2 for name in _LIMITING) and any(
        name in mounted.controllers for name in _LIMITING
    ):
        order = ["v1", "v2"]
    return order


def _open_systemd(mounted: Hierarchies, owner: str) -> SystemdCgroups:
    if not systemd_is_pid_1():
        raise _refused("systemd", "systemd is not the first process here")
    if os.geteuid() != 0:
        raise _refused("systemd", "only root may make scopes of the system's manager")
    if mounted.unified is None:
        raise _refused("systemd", "no cgroup v2 hierarchy is mounted")
    try:
        return open_systemd(mounted.unified, owner)
    except (OSError, CorralError) as error:
        raise _refused("systemd", str(error)) from error


def _open_v2(mounted: Hierarchies, root: str) -> UnifiedCgroups:
    if mounted.unified is None:
        raise _refused("v2", "no cgroup v2 hierarchy is mounted")
    _refuse_own_unit("v2", root, own_groups().get("", "/"))
    try:
        return UnifiedCgroups(mounted.unified, root)
    except OSError as error:
        raise _refused("v2", str(error)) from error


def _open_v1(mounted: Hierarchies, root: str) -> SeparateCgroups:
    if not mounted.controllers:
        raise _refused("v1", "no cgroup v1 hierarchy is mounted")
    _refuse_own_unit("v1", root, own_groups().get("name=systemd", "/"))
    try:
        return SeparateCgroups(mounted, root)
    except OSError as error:
        raise _refused("v1", str(error)) from error


def _refuse_own_unit(choice: str, root: str, own: str) -> None:
    """Refuse a root below the daemon's own unit: a unit with live groups below it cannot be started again."""
    if systemd_is_pid_1() and own != "/" and f"/{root}/".startswith(f"{own}/"):
        raise _refused(
            choice, f"'{root}' lies beneath the daemon's own unit ({own}), which could not restart"
        )


def _refused(choice: str, why: str) -> Rejected:
    return Rejected(
        Code.INVALID_CONFIG,
        f"control groups of kind '{choice}' do not work here: {why}",
        hint="set instances.cgroups to auto to take what works",
        field=_FIELD,
    )
