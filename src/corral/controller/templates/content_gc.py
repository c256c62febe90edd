"""Garbage collection of contents that no record names.

Named contents are marked: by the versions of all templates, by uploaded entries of the catalog, by installed
modules, by stored plans, and by revisions of groups. The rest is dropped when it was not stamped for
`templates.collect_after_seconds`. Code that is about to name a content stamps it first and commits
afterwards; the store checks a stamp and drops the blob in one step. So records may change while a collection
is in progress.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from corral.controller.instances.plans import decoded
from corral.controller.modules.archive_supply import blobs_of
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import PlanRecord
from corral.domain.groups.revisions import RevisionPins
from corral.domain.templates import decode_manifest
from corral.errors import Code, Rejected, Retryable, counted
from corral.store.port import BlobEngine
from corral.system.clock import Clock
from corral.system.controller_config import TemplatesSection
from corral.system.threads import to_end

_FLOOR: Final = dt.timedelta(seconds=60)
"""The time between a stamp and the commit that follows it is shorter than this, whatever is configured."""
PATIENCE: Final = dt.timedelta(days=1)
"""How long a named manifest may be missing before it is given up."""
_PAGE: Final = 2000
_DROP: Final = 200
_log = structlog.get_logger("corral.controller.templates")


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """The contents that records name, as of one moment."""

    manifests: frozenset[str]
    blobs: frozenset[str]
    plans: tuple[PlanRecord, ...] = ()


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    kept: int
    dropped: int


def roots_of(state: ClusterState) -> Roots:
    return Roots(
        manifests=frozenset(
            version.manifest for stored in state.templates for version in stored.record.versions
        ),
        blobs=frozenset(stored.record.sha256 for stored in state.catalog if not stored.record.url)
        | frozenset(digest for stored in state.modules for digest in blobs_of(stored.record))
        | frozenset(digest for stored in state.revisions for digest in _uploaded(stored.record.pins)),
        plans=tuple(stored.record for stored in state.plans),
    )


def _uploaded(pins: RevisionPins) -> Iterator[str]:
    """The programs and extensions of a revision that nodes fetch from the controller."""
    for artifact in (pins.artifact, *(extension.artifact for extension in pins.extensions)):
        if artifact is not None and not artifact.url:
            yield artifact.sha256


class BlobCollector:
    """Call `collect` in every sweep: it works once half of the retention of contents has passed."""

    def __init__(self, blobs: BlobEngine, *, config: TemplatesSection, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._after = max(dt.timedelta(seconds=config.collect_after_seconds), _FLOOR)
        self._due: float | None = None
        self._began = clock.now(), clock.monotonic()
        self._missed: dict[str, float] = {}
        """Named manifests that are missing, and since when."""

    async def collect(self, state: ClusterState) -> Collected | None:
        """A whole collection, or None when the next one is not due. Raises what the store raises."""
        if self._due is not None and self._clock.monotonic() < self._due:
            return None
        collected = await self.collect_now(state)
        self._due = self._clock.monotonic() + self._after.total_seconds() / 2
        return collected

    async def collect_now(self, state: ClusterState) -> Collected:
        """Mark, then drop in small steps; may be interrupted at any point.

        Nothing is dropped while a named manifest cannot be read, because the contents it names would be: a
        store may be half restored. One that is missing for `PATIENCE` is given up, or nothing would ever be
        dropped again; its contents cannot be used without it.
        """
        before = self._time() - self._after
        marked = await self._mark(roots_of(state))
        kept = dropped = 0
        after = ""
        while page := await self._blobs.blob_stamps(after=after, limit=_PAGE):
            after = page[-1].digest
            unused = [
                stamp.digest
                for stamp in page
                if stamp.at < before and bytes.fromhex(stamp.digest) not in marked
            ]
            for start in range(0, len(unused), _DROP):
                dropped += await self._blobs.drop_blobs(unused[start : start + _DROP], before=before)
                await asyncio.sleep(0)
            kept += len(page) - len(unused)
        if dropped:
            _log.info("template_contents.removed", dropped=dropped, kept=kept)
        return Collected(kept=kept, dropped=dropped)

    def _time(self) -> dt.datetime:
        """The present time, with no more progress since the start than the monotonic clock's: a wall clock
        that is set forward must not age fresh stamps."""
        wall, monotonic = self._began
        passed = dt.timedelta(seconds=self._clock.monotonic() - monotonic)
        return min(self._clock.now(), wall + passed)

    async def _mark(self, roots: Roots) -> set[bytes]:
        """The marked contents as raw digests: there may be hundreds of thousands."""
        marked = {bytes.fromhex(digest) for digest in (*roots.manifests, *roots.blobs)}
        for start in range(0, len(roots.plans), _PAGE):
            plans = roots.plans[start : start + _PAGE]
            marked |= await to_end(functools.partial(_named_by_plans, plans))
        missed, self._missed = self._missed, {}
        for digest in sorted(roots.manifests):
            try:
                marked |= await self._named_by_manifest(digest)
            except Rejected as error:
                self._missed[digest] = missed.get(digest, self._clock.monotonic())
                _log.warning("template_manifest_read.failed", manifest=digest, reason=str(error))
        self._check_patience()
        return marked

    def _check_patience(self) -> None:
        limit = self._clock.monotonic() - PATIENCE.total_seconds()
        waiting = [digest for digest, since in self._missed.items() if since > limit]
        if waiting:
            raise Retryable(
                Code.TEMPLATE_UNAVAILABLE,
                f"{counted(len(waiting), 'manifest')} of templates cannot be read, such as {waiting[0]}",
                hint="bring the store's blobs back, or delete those templates",
            )

    async def _named_by_manifest(self, digest: str) -> set[bytes]:
        parts = [part async for part in self._blobs.read_blobs([digest])]
        return await to_end(lambda: _named_by(b"".join(parts)))


def _named_by(manifest: bytes) -> set[bytes]:
    try:
        files = decode_manifest(manifest).files
        return {bytes.fromhex(digest) for file in files for digest in file.blobs}
    except ValueError as error:  # includes msgspec's
        raise Rejected(Code.FORMAT_INVALID, f"the manifest cannot be read: {error}") from error


def _named_by_plans(plans: tuple[PlanRecord, ...]) -> set[bytes]:
    """Programs that a run may fetch from the controller, also after the catalog has another one."""
    found = set()
    for record in plans:
        try:
            plan = decoded(record)
        except msgspec.MsgspecError as error:
            raise Rejected(Code.FORMAT_INVALID, f"plan {record.hash} cannot be read: {error}") from error
        for artifact in (plan.artifact, *(extension.artifact for extension in plan.extensions)):
            if artifact is not None and not artifact.url:
                found.add(bytes.fromhex(artifact.sha256))
    return found
