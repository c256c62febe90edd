"""Archives of small modules that are measured."""

from __future__ import annotations

import json
from typing import Final

from corral.testing.archives import zipped

_STARTING: Final = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_instance_starting(self, spec):
        spec.env["FROM_%s"] = spec.group
"""


def starting_module(id: str) -> bytes:
    """A module of nodes that gives each start a variable."""
    manifest = {
        "manifestVersion": 1,
        "id": id,
        "version": "1.0.0",
        "api": ">=1.0",
        "hosts": ["daemon"],
        "backend": {"daemon": {"entrypoint": "bench_module:Module"}},
    }
    source = _STARTING % id.replace("-", "_").upper()
    return zipped({"module.yaml": json.dumps(manifest).encode(), "bench_module.py": source.encode()})
