"""Changes of a cluster on the controller's host, without the API.

A user who may write the data directory owns store and cluster key anyway. So the lock on that directory is
the permission, and a running controller, which holds the lock, refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CLUSTER
from corral.controller.state.ledger import Actor, Ledger, Step
from corral.controller.term.lost_store import StorePosition, is_missing
from corral.errors import Code, Rejected
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership, LeaseTiming, Term
from corral.store.port import Store
from corral.store.store_errors import Fenced
from corral.store.writer import Writer
from corral.system.clock import Clock, SystemClock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy, SystemEntropy, new_id
from corral.system.files import DirectoryLock

T = TypeVar("T")


class OfflineCluster(NamedTuple):
    """What a change is described by."""

    state: ClusterState
    actor: Actor
    """The account of the host, for the audit."""
    clock: Clock
    entropy: Entropy


Describe = Callable[[OfflineCluster], Awaitable[tuple[T, tuple[Step, ...]]]]
"""The result of a change, and its steps, the audit's entry included."""


@contextlib.contextmanager
def claimed(config: ControllerConfig) -> Iterator[None]:
    """Keep controllers off the data directory. DATA_DIRECTORY_LOCKED while one runs on it, NOT_FOUND where there is no
    cluster."""
    if not config.data.is_dir() or is_missing(config):
        raise _no_cluster(config)
    with DirectoryLock(config.data, "controller"):
        yield


def change_offline(config: ControllerConfig, describe: Describe[T]) -> T:
    """Commit a change to a cluster that is `claimed`. CONFLICT while a controller leads elsewhere, NOT_FOUND where the store
    holds no cluster."""
    return asyncio.run(_change(config, describe))


async def _change(config: ControllerConfig, describe: Describe[T]) -> T:
    store = await open_store(config.store.url, data=config.data)
    try:
        position = StorePosition(config.data)
        await position.check(store.reads, accept=False)
        if not (await store.reads.snapshot([CLUSTER.name])).documents:
            raise _no_cluster(config)
        term = await _lead(store, config)
        try:
            state = ClusterState()
            state.load(await store.reads.snapshot(state.collections))
            made = await _commit(store, term, state, describe)
            await position.note(state.number)
        finally:
            await term.release()
        return made
    finally:
        await store.close()


async def _lead(store: Store, config: ControllerConfig) -> Term:
    """Take the lease once it has expired; CONFLICT while a live leader renews it."""
    lease = config.lease
    timing = LeaseTiming(
        ttl=lease.ttl_seconds,
        renew=lease.renew_seconds,
        margin=lease.margin_seconds,
        poll=lease.renew_seconds,
    )
    leadership = Leadership(
        store.leases,
        clock=SystemClock(),
        holder=new_id("offline", SystemEntropy()),
        timing=timing,
        uncontested=store.exclusive,
    )
    try:
        async with asyncio.timeout(2 * lease.ttl_seconds):
            return await leadership.acquire()
    except TimeoutError:
        raise Rejected(
            Code.CONFLICT,
            "another controller of this cluster leads",
            hint="stop every controller of the cluster first",
        ) from None


async def _commit(store: Store, term: Term, state: ClusterState, describe: Describe[T]) -> T:
    clock, entropy = SystemClock(), SystemEntropy()
    failed: list[BaseException] = []

    def fenced(error: Fenced) -> None:
        failed.append(error)

    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=clock,
        entropy=entropy,
        on_commit=state.apply,
        on_fenced=fenced,
        on_fatal=failed.append,
    )
    actor = Actor(name=f"host:{getpass.getuser()}")
    made, steps = await describe(OfflineCluster(state, actor, clock, entropy))
    async with writer:
        await Ledger(writer, state).commit(*steps)
    if failed:
        raise failed[0]
    return made


def _no_cluster(config: ControllerConfig) -> Rejected:
    below = config.data / "controller"
    there = f"'corral up' keeps it in {below}; " if below.is_dir() else ""
    return Rejected(
        Code.NOT_FOUND,
        f"there is no cluster in {config.data}",
        hint=f"{there}name the controller's directory with --data, and its database with --store; the first start of a "
        "controller writes the first token",
    )
