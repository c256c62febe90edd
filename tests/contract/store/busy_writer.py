"""A process that commits in a loop and says which commits were acknowledged, until it is killed."""

from __future__ import annotations

import asyncio
import pathlib
import sys

from store_cases import at_work, happened, put

from corral.store.engine_selection import open_store
from corral.store.port import Append
from corral.system.logger import log_plainly


async def main(url: str, data: str, journal: str = "log") -> None:
    store = await open_store(url, data=pathlib.Path(data))

    async with at_work(store) as desk:

        async def caller(name: int) -> None:
            for n in range(1_000_000):
                id = f"{name}-{n}"
                await desk.commit(
                    put(id, b"x" * 200), happened(id), Append(journal=journal, body=id.encode())
                )
                print(id, flush=True)

        await asyncio.gather(*(caller(name) for name in range(8)))


log_plainly(sys.stderr)
asyncio.run(main(*sys.argv[1:]))
