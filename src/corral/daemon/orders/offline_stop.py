"""Stop of everything on a node whose daemon does not run.

Every stop order is on disk before anything is adopted: so no pending start or restart is made here, and a later
daemon goes on stopping what is left.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from corral.daemon.cache.cache import open_cache
from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.link.spool import open_spool
from corral.daemon.node.data_directory import DAEMON_ROLE, make_data_directory
from corral.daemon.node.identity import load_identity
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import RunDirectories, RunFiles, StopOrder
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervision import NodeRuntime, Supervision
from corral.errors import CorralError
from corral.system.clock import SystemClock
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import SystemEntropy
from corral.system.files import DirectoryLock

_log = structlog.get_logger("corral.daemon.orders")


async def stop_everything(config: DaemonConfig, *, force: bool) -> list[Run]:
    """Stop everything that runs in this data directory, and wait until nothing is left; returns the runs. Their
    outcomes are in the spool, for the controller to receive later. DATA_DIRECTORY_LOCKED when a daemon runs."""
    clock, entropy, data = SystemClock(), SystemEntropy(), config.data
    order = StopOrder(reason="a local order to stop everything", force=force)
    async with contextlib.AsyncExitStack() as stack:
        make_data_directory(data)
        stack.enter_context(DirectoryLock(data, DAEMON_ROLE))
        await asyncio.to_thread(_order_all, RunDirectories(data), order)
        runtime = await NodeRuntime.open(data, config.instances)
        stack.push_async_callback(runtime.close)
        spool = open_spool(config, entropy)
        stack.push_async_callback(spool.close)
        consoles = await stack.enter_async_context(NodeConsoles(clock))
        identity = load_identity(data)
        supervision = Supervision(
            config=config,
            node_runs=NodeRuns(
                config,
                node_id=identity.node_id if identity else "",
                address="",
                cache=await stack.enter_async_context(open_cache(config, clock, entropy)),
                spool=spool,
                entropy=entropy,
            ),
            runtime=runtime,
            consoles=consoles,
            clock=clock,
            entropy=entropy,
        )
        stack.push_async_callback(supervision.end)
        await supervision.begin()
        await supervision.supervisor.stop_all(order)
        try:  # no periodic cleanup runs here
            await supervision.housekeeping.tidy()
        except (CorralError, OSError) as error:
            _log.warning("cleanup.failed", reason=str(error))
        return supervision.supervisor.instances.runs()


def _order_all(runs: RunDirectories, order: StopOrder) -> None:
    """The newest run of each instance, whether it lives or its restart is to come, and every run that has not
    ended."""
    newest = {run.instance_id: run.path for run in runs.all()}
    for run in runs.all():
        files = RunFiles(run.path)
        if not files.has_outcome() or newest[run.instance_id] == run.path:
            try:
                files.write_order(order)
            except CorralError as error:  # a full disk must not keep anything running
                _log.error("stop_order_write.failed", run=str(run.path), reason=str(error))
