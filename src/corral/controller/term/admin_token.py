"""A new administrator's token for a cluster whose tokens are lost, created on the controller's host without
the API.

A user who may write the data directory owns store and cluster key anyway. So the lock on that directory is
the permission, and a running controller, which holds the lock, refuses it.
"""

from __future__ import annotations

import asyncio
import getpass
import pathlib

import msgspec

from corral.controller.accounts.users import restored_admin
from corral.controller.state.api_tokens import creation, mint
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CLUSTER
from corral.controller.state.ledger import Actor, Ledger, audit
from corral.controller.term.cluster_init import ADMIN_TOKEN_FILE
from corral.controller.term.lost_store import StorePosition, is_missing, put_aside
from corral.domain.permissions import Role
from corral.errors import Code, Rejected
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership, LeaseTiming, Term
from corral.store.port import Store
from corral.store.store_errors import Fenced
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import SystemEntropy, new_id
from corral.system.files import DirectoryLock, atomic_write


class MadeToken(msgspec.Struct, frozen=True, kw_only=True):
    """The created token; its text is only in the file."""

    id: str
    path: pathlib.Path


def make_admin_token(config: ControllerConfig) -> MadeToken:
    """Store a new ADMIN token and write its text to DATA/admin.token, mode 0600; an earlier file is renamed.

    DATA_DIRECTORY_LOCKED while a controller runs on this directory, CONFLICT while one leads elsewhere,
    NOT_FOUND where there is no cluster.
    """
    if not config.data.is_dir() or is_missing(config):
        raise _no_cluster(config)
    with DirectoryLock(config.data, "controller"):
        return asyncio.run(_make(config))


async def _make(config: ControllerConfig) -> MadeToken:
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
            made = await _commit(store, term, state, config.data)
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
        holder=new_id("admin-token", SystemEntropy()),
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


async def _commit(store: Store, term: Term, state: ClusterState, data: pathlib.Path) -> MadeToken:
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
    record, text = mint(
        name="lost-token", role=Role.ADMIN, created_by=actor.name, now=clock.now(), entropy=entropy
    )
    path = data / ADMIN_TOKEN_FILE
    put_aside([path])
    atomic_write(path, f"{text}\n".encode())
    async with writer:
        await Ledger(writer, state).commit(
            *restored_admin(state, clock.now()), *creation(record), audit(actor, "token.create", record.id)
        )
    if failed:
        raise failed[0]
    return MadeToken(id=record.id, path=path)


def _no_cluster(config: ControllerConfig) -> Rejected:
    return Rejected(
        Code.NOT_FOUND,
        f"there is no cluster in {config.data}",
        hint="name the controller's directory with --data, and its database with --store; the first start of a "
        "controller writes the first token",
    )
