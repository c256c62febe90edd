"""A leader that stands inside a transaction, holding the fence's share lock, until it is stopped.

Run as a process of its own: URL of the database as argument. Says `inside` when it is there,
and after it was stopped and continued whether its commit was `accepted` or `refused`.
"""

from __future__ import annotations

import asyncio
import sys

from store_cases import SHORT

from corral.store.leadership import Leadership
from corral.store.postgres.connections import Deadlines, PostgresConnector
from corral.store.postgres.engine import open_postgres
from corral.store.postgres.faults import FAILURES
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.system.logger import log_plainly

# Only being cut off by the successor may free the lock, no time-out of the server.
PATIENT = Deadlines(idle_in_transaction=3600.0, statement=3600.0)


async def main(url: str) -> None:
    store = await open_postgres(url)
    term = await Leadership(store.leases, clock=SystemClock(), holder="stopped", timing=SHORT).acquire()
    holding = asyncio.create_task(term.hold())
    server = PostgresConnector(url, entropy=SystemEntropy(), deadlines=PATIENT)
    connection = await server.connect(server.writer_name(term.epoch))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select corral_check_fence($1)", term.epoch)
    await connection.execute("insert into document values ('things', 'late', 1, 'deposed')")
    print("inside", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    try:
        await transaction.commit()
    except FAILURES:
        print("refused", flush=True)
    else:
        print("accepted", flush=True)
    holding.cancel()


log_plainly(sys.stderr)
asyncio.run(main(sys.argv[1]))
