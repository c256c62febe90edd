"""Data directory of a daemon: a directory in other use is refused.

A daemon of root closes everything in its data directory to other users. In a directory that was meant for something
else (`--data /srv`) that would lock out its users.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

from corral.errors import Code, Rejected, short_list
from corral.system.files import make_directory

DAEMON_ROLE: Final = "daemon"
AUTHORITY_FILE: Final = "authority.pem"
"""The certificates of the cluster's authorities: the one file there that workloads read."""
AUTHORITY_MODE: Final = 0o644
_LOCK: Final = f"{DAEMON_ROLE}.lock"
OURS: Final = frozenset(
    (
        *(
            ".discarded",
            ".link.room",
            "cache",
            "keeper",
            "logs",
            "modules",
            "running",
            "runs",
            "secrets",
            "spool",
            "static",
        ),
        *("contact.json", "daemon.sock", "enrolment.json", "identity.json", "link.json", "machine-id"),
        "renewal.json",
        *("static.key", "uids.json", AUTHORITY_FILE, _LOCK),
        "lost+found",  # of a file system that is mounted for the daemon
    )
)
"""Names that a daemon makes there, and that may exist before its first start."""
_SHOWN: Final = 5


def make_data_directory(path: pathlib.Path) -> None:
    """Create it, or accept one that a daemon has used before, or that has only entries of a daemon. INVALID_CONFIG for
    any other, when running as root; then nothing in it was touched."""
    make_directory(path)
    if os.geteuid() != 0:
        return
    names = {entry.name for entry in path.iterdir()}
    foreign = sorted(names - OURS)
    if foreign and _LOCK not in names:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"the directory {path} is not a daemon's: it holds {short_list(map(repr, foreign), _SHOWN)}, "
            "and a daemon that is root closes its data directory to all other users",
            hint="choose an empty directory, or one that does not exist yet, with --data",
            field="data",
        )
