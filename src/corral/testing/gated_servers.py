"""Servers that are ready, or break, when a test lets them: by files, one for each version of their group."""

from __future__ import annotations

import pathlib
from typing import Any

from corral.testing import workloads

_SERVER = """
import os, sys, time
files, version = sys.argv[1], os.environ.get("VERSION", "1")
print("this is version", version, flush=True)
if os.path.exists(f"{files}/broken-{version}"):
    print("no such map: winter", flush=True)
    raise SystemExit(3)
while not os.path.exists(f"{files}/open-{version}"):
    time.sleep(0.05)
print("Done", flush=True)
time.sleep(86400)
"""


class GatedServers:
    """The files that servers of a group look at."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.open(1)

    def document(self, name: str = "lobby", **fields: Any) -> dict[str, Any]:
        """A group of such servers. `update` has no waits that a test does not need."""
        update = {"min_healthy_seconds": 0, **fields.pop("update", {})}
        return {
            "name": name,
            "command": workloads.python(_SERVER, str(self.directory)),
            "probes": [{"kind": "log", "pattern": "Done"}],
            "startup_timeout_seconds": 600,
            "min_alive_ms": 0,
            "restart": {"attempts": 0},
            "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
            "memory_mb": 10,
            "min": 3,
            "update": update,
            **fields,
        }

    def open(self, version: int) -> None:
        """Servers of this version become ready from now on."""
        (self.directory / f"open-{version}").touch()

    def close(self, version: int) -> None:
        """Servers of this version that are not ready yet wait."""
        (self.directory / f"open-{version}").unlink(missing_ok=True)

    def break_(self, version: int) -> None:
        """Servers of this version that start from now on end at once."""
        (self.directory / f"broken-{version}").touch()
