"""A daemon in miniature that starts a run with a window, says so, and waits to be killed.

Arguments: the data directory, the multiplexer, and the specification as JSON.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys

import msgspec

from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.sessions.provider import SessionRuntime
from corral.sdk.runtime import RunSpec
from corral.testing.runtime_nodes import multiplexer_called


async def main() -> None:
    data, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    spec = msgspec.json.decode(sys.argv[3], type=RunSpec)
    runtime = SessionRuntime(ProcessRuntime(data, NoCgroups("house"), name=name), multiplexer_called(name))
    await runtime.open()
    await runtime.start(spec)
    print("started", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
