"""A process that upgrades the ledgers of a store as a new leader does, and names each when it is stored, until it is
killed."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import structlog
from store_cases import Desk, at_work

from corral.controller.instances.ledger_format_upgrade import upgrade_ledgers
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.store.engine_selection import open_store
from corral.store.port import Commit, Transaction


class Folding:
    """Commits, and memory that follows them."""

    def __init__(self, desk: Desk, state: ClusterState) -> None:
        self._desk = desk
        self._state = state
        self.commits = 0

    async def commit(self, transaction: Transaction) -> Commit:
        commit = await self._desk.writer.commit(transaction)
        self._state.apply(commit)
        self.commits += 1
        print(commit.number, flush=True)
        return commit


async def upgrade(desk: Desk) -> tuple[ClusterState, int]:
    """Memory after the upgrade, and the number of commits that it took."""
    state = ClusterState()
    state.load(await desk.store.reads.snapshot(state.collections))
    folding = Folding(desk, state)
    await upgrade_ledgers(Ledger(folding, state))
    return state, folding.commits


async def main(url: str, data: str) -> None:
    store = await open_store(url, data=pathlib.Path(data))
    async with at_work(store) as desk:
        await upgrade(desk)
    await store.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    asyncio.run(main(sys.argv[1], sys.argv[2]))
