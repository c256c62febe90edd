"""Checks of the programs that a node has for instances, and who listens on its ports."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
import subprocess
from collections.abc import Collection, Iterable
from typing import Final

from corral.cli.doctor.findings import Verdict, advice, error, ok
from corral.cli.doctor.machine_checks import PROGRAM_SECONDS, install
from corral.daemon.workload.java import find_java
from corral.errors import CorralError, short_list
from corral.runtimes.sessions.multiplexer import find_program

GAMES: Final = tuple(map(pathlib.Path, ("/usr/games", "/usr/local/games", "/snap/bin")))
SOCKETS: Final = tuple(map(pathlib.Path, ("/run/docker.sock", "/run/podman/podman.sock")))
_OLDEST_JAVA: Final = 17
_JAVA: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SHOWN: Final = 3


def closed_to_others(path: pathlib.Path) -> pathlib.Path | None:
    """The first directory on the way to this path that other users may not pass."""
    way = [each for each in (*reversed(path.parents), path) if each.exists()]
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def path(search: str, elsewhere: Iterable[pathlib.Path]) -> Verdict:
    """`search`: the PATH of instances; `elsewhere`: directories in which distributions have programs beside it."""
    places = [pathlib.Path(each) for each in search.split(":")]
    if closed := next(filter(None, map(closed_to_others, places)), None):
        return error(f"other users than its owner do not get into {closed}", f"chmod o+x {closed}")
    for place in elsewhere:
        names = sorted(each.name for each in place.iterdir()) if place.is_dir() else []
        if names and place not in places:
            found = f"instances do not find what is in {place}: {short_list(names, _SHOWN)}"
            why = f"Name such a program by its whole path, or set PATH in 'env' of the group. Instances search {search}."
            return advice(
                found, f"echo 'command: [{place / names[0]}]' | corral group update GROUP -f -", why
            )
    return ok(search)


def java(configured: str) -> Verdict:
    """`configured`: the setting `java.path`."""
    try:
        found = find_java("", configured)
    except CorralError:
        if configured:
            return error(f"there is no Java at {configured}, which java.path names", f"ls -l {configured}")
        return advice("Java is not installed", install("default-jre-headless"))
    command = [found, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    text = (done.stderr + done.stdout).strip() or f"exit code {done.returncode}"
    version = _JAVA.search(text)
    if done.returncode or version is None:
        return error(f"{found} does not run: {text.splitlines()[0]}", f"{found} -version")
    if int(version[1]) < _OLDEST_JAVA:
        return advice(
            f"Java {version[1]} ({found}); many servers need {_OLDEST_JAVA}", install("default-jre-headless")
        )
    return ok(f"Java {version[1]} ({found})")


def multiplexer(name: str) -> Verdict:
    program = find_program(name)
    return ok(program) if program else advice(f"{name} is not installed", install(name))


def containers(sockets: Iterable[pathlib.Path]) -> Verdict:
    """Corral uses none."""
    for each in sockets:
        if each.exists() and each.stat().st_mode & stat.S_IWOTH:
            return error(f"everybody may use {each}", f"chmod o-rwx {each}")
    engines = [name for name in ("docker", "podman") if find_program(name)]
    return ok(f"{' and '.join(engines) or 'no engine'} found; instances run without containers")


def socket_owners(inodes: Collection[int]) -> dict[int, str]:
    """The program of each of these sockets, as far as they can be seen; empty for an instance's."""
    found: dict[int, str] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            held = {os.readlink(each) for each in (process / "fd").iterdir()} & wanted.keys()  # noqa: PTH115 - many
            if held:
                own = b"\0CORRAL_INSTANCE_ID=" in b"\0" + (process / "environ").read_bytes()
                name = "" if own else (process / "comm").read_text().strip()
                found |= {wanted[each]: name for each in held}
    return found
