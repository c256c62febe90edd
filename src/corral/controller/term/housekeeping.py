"""Removal of what has expired: tokens, sessions, idempotency records, and history beyond the configured retention."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from typing import Final, Self

import msgspec
import structlog

from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.http.pipeline.idempotency import expired
from corral.controller.instances.retention import forgotten
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    ADMIN_CERTIFICATES,
    COMMANDS_PREFIX,
    DECISIONS_PREFIX,
    DEPLOYMENT_DECISIONS_PREFIX,
    GROUP_DECISIONS_PREFIX,
    IDEMPOTENCY,
    INSTANCE_DECISIONS_PREFIX,
    JOIN_TOKENS,
    NODE_DECISIONS_PREFIX,
    NODE_LOG_PREFIX,
    TEMPLATES,
)
from corral.controller.state.ledger import SYSTEM, Ledger, Step, audit
from corral.controller.templates.content_gc import BlobCollector
from corral.controller.templates.template_changes import kept_versions
from corral.controller.templates.template_usage import hashes_in_use
from corral.controller.term.lost_outcomes import settle_lost_outcomes
from corral.domain.audit_chain import ChainedEntry
from corral.domain.audit_export import REMOVAL_ACTION
from corral.domain.ids import Epoch
from corral.errors import CorralError
from corral.store.port import Store
from corral.store.retention import ChainRetention, Retention, RetentionPolicy
from corral.store.store_errors import StoreUnavailable
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.controller_config import ControllerConfig

_SWEEP_SECONDS: Final = 60.0
_PER_COMMIT: Final = 200
_JOIN_TOKEN_MEMORY: Final = dt.timedelta(days=7)
"""The retention of used and expired join tokens: until then a late host receives the reason why its token is
refused."""

_DECISION_MEMORY: Final = dt.timedelta(days=7)
"""How long after the last decision about something that is gone its journal is kept: until then `why` explains it."""
_MOST_KEPT: Final = 1000
"""Journals of instances, of groups and of nodes that are gone: so many of each."""

_log = structlog.get_logger("corral.controller.term")


class Housekeeping:
    """Periodic sweeps. Use as `async with`. A failed sweep is repeated with the next one."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        store: Store,
        ledger: Ledger,
        user_sessions: UserSessions,
        epoch: Epoch,
        clock: Clock,
    ) -> None:
        self._reads = store.reads
        self._commits = store.commits
        self._epoch = epoch
        self._ledger = ledger
        self._user_sessions = user_sessions
        self._clock = clock
        self._instances = config.instances
        self._keep_versions = config.templates.keep_versions
        policy = RetentionPolicy(
            events=config.retention.events,
            module_events=max(1, config.retention.events * config.retention.module_events_percent // 100),
            module_event_bytes=config.retention.module_event_bytes,
            journals={
                NODE_LOG_PREFIX: config.retention.node_log,
                DECISIONS_PREFIX: config.instances.decisions_per_subject,
                COMMANDS_PREFIX: config.instances.commands_per_instance,
            },
            chain=ChainRetention(
                rows=config.retention.audit,
                age=dt.timedelta(days=config.retention.audit_days),
                record=self._record_removal,
            ),
        )
        self._collector = BlobCollector(store.blobs, config=config.templates, clock=clock)
        self._retention = Retention(store, epoch=epoch, policy=policy, clock=clock)
        self._ends: dict[str, dt.datetime] = {}
        """Journals of what is gone, by when they are dropped: none is read every minute."""
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        former = (await self._reads.head()).entry  # no request is served yet: these are of former terms
        self._tasks.spawn(self._settle_outcomes(former), name="housekeeping/outcomes")
        self._tasks.spawn(self._retention.run(every=_SWEEP_SECONDS), name="housekeeping/retention")
        self._tasks.spawn(self._sweep_for_ever(), name="housekeeping/sweep")
        self._tasks.spawn(self._collect_for_ever(), name="housekeeping/collect")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    async def _record_removal(self, last: ChainedEntry, count: int) -> None:
        """An entry of the audit from which a check of it knows that retention removes entries, and which."""
        removed = {
            "through": last.number,
            "hash": last.hash.hex(),
            "at": last.at.isoformat(),
            "entries": count,
        }
        await self._ledger.commit(audit(SYSTEM, REMOVAL_ACTION, "audit", after=removed))

    async def _settle_outcomes(self, through: int) -> None:
        while True:
            try:
                await settle_lost_outcomes(self._reads, self._ledger, through=through)
            except StoreUnavailable as error:
                _log.warning("act_outcomes.retried", reason=error.why)
                await asyncio.sleep(_SWEEP_SECONDS)
            except CorralError as error:  # fenced, or shutting down: the next term does it
                _log.info("act_outcomes.skipped", reason=str(error))
                return
            else:
                return

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                while await self.sweep():
                    await asyncio.sleep(0)
                await self.forget_journals()
            except CorralError as error:
                _log.warning("housekeeping_sweep.retried", reason=str(error))
            except Exception:
                _log.exception("housekeeping_sweep.failed")
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _collect_for_ever(self) -> None:
        """Collect unused content, apart from the sweeps because checking all content of a large store takes
        long."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if self._ledger.state.quarantine:
                continue  # an unreadable document may reference content that looks unused
            try:
                await self._collector.collect(self._ledger.state)
            except CorralError as error:
                _log.warning("housekeeping_collection.retried", reason=str(error))
            except Exception:
                _log.exception("housekeeping_collection.failed")

    async def sweep(self) -> int:
        """Remove some of what has expired; returns how much, 0 when nothing is left to do."""
        steps = self._expired_steps()
        if steps:
            await self._ledger.commit(*steps)
        return len(steps)

    async def forget_journals(self) -> None:
        """Drop the logs of removed nodes, the commands of removed instances, and journals of decisions about removed nodes, instances and groups whose last
        entry is old, or which are too many. Skipped while documents are unreadable: the owner of a journal may be among them."""
        state = self._ledger.state
        if state.quarantine:
            return
        await self._forget(NODE_LOG_PREFIX, lambda name: state.nodes.find(name) is not None)
        await self._forget(COMMANDS_PREFIX, lambda name: state.instances.find(name) is not None)
        kept = _DECISION_MEMORY
        await self._forget(
            INSTANCE_DECISIONS_PREFIX, lambda name: state.instances.find(name) is not None, kept
        )
        await self._forget(GROUP_DECISIONS_PREFIX, lambda name: state.groups.find(name) is not None, kept)
        await self._forget(NODE_DECISIONS_PREFIX, lambda name: state.nodes.find(name) is not None, kept)
        await self._forget(
            DEPLOYMENT_DECISIONS_PREFIX, lambda name: state.deployments.find(name) is not None, kept
        )

    async def _forget(
        self, prefix: str, exists: Callable[[str], bool], kept: dt.timedelta = dt.timedelta()
    ) -> None:
        """Of journals without an owner the newest entries are kept for a while, and no more than `_MOST_KEPT`."""
        now = self._clock.now()
        journals = await self._reads.journals(prefix)
        gone = [journal for journal in journals if not exists(journal.removeprefix(prefix))]
        ends = {journal: await self._kept_until(journal, kept) for journal in gone}
        self._ends = {
            journal: end for journal, end in self._ends.items() if not journal.startswith(prefix)
        } | ends
        newest_first = sorted(gone, key=lambda journal: (ends[journal], journals[journal]), reverse=True)
        for position, journal in enumerate(newest_first):
            if position >= _MOST_KEPT or ends[journal] <= now:
                await self._drop(journal)

    async def _kept_until(self, journal: str, kept: dt.timedelta) -> dt.datetime:
        if journal in self._ends and self._ends[journal] > self._clock.now():
            return self._ends[journal]
        newest = await self._reads.entries(journal, limit=1, newest=True)
        return newest[0].at + kept if newest else self._clock.now()

    async def _drop(self, journal: str) -> None:
        newest = await self._reads.entries(journal, limit=1, newest=True)
        through = [(journal, entry.number) for entry in newest]
        while through and await self._commits.trim(
            epoch=self._epoch, events_through=0, tombstones_through=0, journals=through
        ):
            await asyncio.sleep(0)

    def _expired_steps(self) -> list[Step]:
        now = self._clock.now()
        state = self._ledger.state
        steps: list[Step] = [
            IDEMPOTENCY.delete(id, expect=None) for id in expired(state, now=now, limit=_PER_COMMIT)
        ]
        for serial, certificate in state.admin_certificates.items():
            if certificate.record.expires_at < now:
                steps.append(ADMIN_CERTIFICATES.delete(serial, expect=None))
        for token_id, stored in state.join_tokens.items():
            if stored.record.expires_at + _JOIN_TOKEN_MEMORY < now:
                steps.append(JOIN_TOKENS.delete(token_id, expect=stored.revision))
        steps = steps[:_PER_COMMIT]
        steps += self._user_sessions.upkeep(now)
        steps += itertools.islice(surplus_versions(state, keep=self._keep_versions), _PER_COMMIT)
        steps += forgotten(state, config=self._instances, now=now, limit=_PER_COMMIT)
        return steps


def surplus_versions(state: ClusterState, *, keep: int) -> Iterator[Step]:
    """Template versions that were kept for running instances beside the newest one, and are no longer used."""
    for name, stored in state.templates.items():
        record = stored.record
        if len(record.versions) <= keep:
            continue
        in_use = hashes_in_use(state, name)
        kept = kept_versions(record.versions, keep=keep, current=record.current, in_use=in_use)
        if len(kept) < len(record.versions):
            yield TEMPLATES.put(name, msgspec.structs.replace(record, versions=kept), expect=stored.revision)
