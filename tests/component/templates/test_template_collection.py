"""What nothing names goes after its time; what is named, or about to be, never does."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pathlib

import msgspec
import pytest
from library_cases import a_library, archive_of, blobs_in, sha256
from moved_clock import MovedClock

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CATALOG, MODULE_PACKAGES, PLANS
from corral.controller.state.ledger import Step
from corral.controller.templates import template_changes as changes
from corral.controller.templates.archive_import import ImportedTree
from corral.controller.templates.content_gc import PATIENCE, BlobCollector, Collected
from corral.controller.templates.library import TemplateLibrary
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.plans import PlanArtifact, PlanExtension, encode_plan, read_plan
from corral.domain.ids import Epoch, GroupName
from corral.domain.modules.manifest import Extension, ExtensionVariant, Manifest
from corral.domain.modules.records import PackageRecord
from corral.errors import Retryable
from corral.store.port import Change, Commit, Delete, Put, Store
from corral.system.controller_config import TemplatesSection
from corral.testing.archives import in_chunks, tar_gz

HOUR = 3600


class Office:
    """A store, a state that is committed to at once, and a collector with a clock of ours."""

    def __init__(self, store: Store, scratch: pathlib.Path, clock: MovedClock) -> None:
        self.store = store
        self.clock = clock
        self.state = ClusterState()
        self.library: TemplateLibrary = a_library(store, scratch, clock=clock)
        self.collector = BlobCollector(store.blobs, config=TemplatesSection(), clock=clock)

    def apply(self, *steps: Step) -> None:
        number = self.state.number + 1
        written = tuple(
            Change(
                collection=step.collection,
                id=step.id,
                revision=number,
                body=step.body if isinstance(step, Put) else None,
            )
            for step in steps
            if isinstance(step, Put | Delete)
        )
        commit = Commit(
            number=number, epoch=Epoch(1), at=self.clock.now(), changes=written, events=(), entries=()
        )
        self.state.apply(commit)

    async def upload(self, name: str, files: dict[str, bytes], *, keep: int = 20) -> ImportedTree:
        intake = await self.library.intake_archive(in_chunks(tar_gz(files)))
        self.commit(name, intake, keep=keep)
        return intake

    def commit(self, name: str, intake: ImportedTree, *, keep: int = 20) -> None:
        self.apply(*changes.new_version(self.state, name, intake, now=self.clock.now(), keep=keep).steps)

    async def collect(self) -> Collected:
        return await self.collector.collect_now(self.state)


@pytest.fixture
def office(store: Store, scratch: pathlib.Path, clock: MovedClock) -> Office:
    return Office(store, scratch, clock)


async def test_what_templates_name_stays_and_the_rest_goes_after_its_time(office: Office) -> None:
    kept = await office.upload("base", {"a": b"kept", "large": os.urandom(5_000_000)})
    await office.upload("gone", {"a": b"kept", "b": b"gone"})
    office.apply(*changes.delete(office.state, "gone"))
    everything = await blobs_in(office.store)
    office.clock.move(HOUR - 60)
    assert (await office.collect()).dropped == 0
    assert await blobs_in(office.store) == everything
    office.clock.move(120)
    assert (await office.collect()).dropped == 2
    named = {digest for file in kept.manifest.files for digest in file.blobs}
    assert await blobs_in(office.store) == {kept.digest, *named}
    assert sha256(await archive_of(office.library, kept)) == kept.hash


async def test_versions_beyond_retention_give_their_contents_back(office: Office) -> None:
    for number in range(5):
        await office.upload("base", {"same": b"same", "own": str(number).encode()}, keep=2)
    office.clock.move(2 * HOUR)
    assert await office.collect() == Collected(kept=5, dropped=6)
    record = office.state.templates.require("base").record
    for version in record.versions:
        assert (await office.library.tree_of(version)).files


async def test_an_intake_that_nobody_committed_goes(office: Office) -> None:
    await office.library.intake_archive(in_chunks(tar_gz({"a": b"1"})))
    office.clock.move(2 * HOUR)
    assert (await office.collect()).dropped == 2
    assert await blobs_in(office.store) == set()


async def test_an_intake_of_old_contents_is_safe_before_it_is_committed(office: Office) -> None:
    files = {"a": b"1", "large": os.urandom(5_000_000)}
    await office.upload("old", files)
    office.apply(*changes.delete(office.state, "old"))
    office.clock.move(2 * HOUR)
    intake = await office.library.intake_archive(in_chunks(tar_gz(files)))
    assert (await office.collect()).dropped == 0
    office.commit("new", intake)
    office.clock.move(2 * HOUR)
    assert (await office.collect()).dropped == 0
    assert sha256(await archive_of(office.library, intake)) == intake.hash


async def test_uploads_beside_collections_never_lose_a_content(office: Office) -> None:
    files = {f"{number}": os.urandom(1000) for number in range(50)}
    for turn in range(6):
        await office.upload("old", {**files, "turn": str(turn).encode()})
        office.apply(*changes.delete(office.state, "old"))
        office.clock.move(2 * HOUR)
        work = asyncio.create_task(office.library.intake_archive(in_chunks(tar_gz(files))))
        while not work.done():
            await office.collect()
        try:
            intake = work.result()
        except Retryable:  # told in time: the uploader sends it again
            intake = await office.library.intake_archive(in_chunks(tar_gz(files)))
        office.commit("new", intake)
        await office.collect()
        assert sha256(await archive_of(office.library, intake)) == intake.hash
        office.apply(*changes.delete(office.state, "new"))


async def test_uploaded_programs_stay_while_the_catalog_or_a_plan_names_them(office: Office) -> None:
    contents = [b"in the catalog", b"in a plan", b"replaced", b"by url"]
    infos = [info.digest for info in await office.store.blobs.put_blobs(contents)]
    now = office.clock.now()
    entry = CatalogRecord(
        platform="paper", version="1", file="a.jar", sha256=infos[0], created_at=now, updated_at=now
    )
    other = CatalogRecord(
        platform="paper",
        version="2",
        file="a.jar",
        url="http://x",
        sha256=infos[3],
        created_at=now,
        updated_at=now,
    )
    record = _plan(PlanArtifact(file="a.jar", sha256=infos[1]))
    office.apply(
        CATALOG.put(entry.id, entry, expect=None),
        CATALOG.put(other.id, other, expect=None),
        PLANS.put(record.hash, record, expect=None),
    )
    office.clock.move(2 * HOUR)
    assert await office.collect() == Collected(kept=2, dropped=2)
    assert await blobs_in(office.store) == set(infos[:2])


def _plan(artifact: PlanArtifact):
    class Nothing:
        def template(self, name, /):
            return None

        def templates_in(self, group, /):
            return []

        def artifact(self, platform, version, /):
            return None

        def packages(self):
            return ()

    spec = GroupSpec(name=GroupName("lobby"), command=("x",))
    plan = resolve_plan(spec, Nothing(), lambda _: 0).plan
    return encode_plan(msgspec.structs.replace(plan, artifact=artifact))


async def test_files_of_a_module_stay_while_the_module_or_a_plan_names_them(office: Office) -> None:
    archive, running, waiting = (
        info.digest for info in await office.store.blobs.put_blobs([b"archive", b"runs", b"waits"])
    )
    plan = encode_plan(
        msgspec.structs.replace(
            read_plan(_plan(PlanArtifact(file="a.jar", url="https://x", sha256="0" * 64))),
            extensions=(PlanExtension(id="e", module="m", artifact=PlanArtifact(file="e", sha256=running)),),
        )
    )
    office.apply(
        MODULE_PACKAGES.put("m", _package(archive, running, waiting), expect=None),
        PLANS.put(plan.hash, plan, expect=None),
    )
    office.clock.move(2 * HOUR)
    assert await office.collect() == Collected(kept=3, dropped=0)
    office.apply(MODULE_PACKAGES.delete("m", expect=None))
    assert await office.collect() == Collected(kept=1, dropped=2)
    assert await blobs_in(office.store) == {running}
    office.apply(PLANS.delete(plan.hash, expect=None))
    assert await office.collect() == Collected(kept=0, dropped=1)


def _package(archive: str, *files: str) -> PackageRecord:
    variants = tuple(
        ExtensionVariant(id=f"v{at}", file=f"{at}.jar", sha256=digest, install_path="e.jar")
        for at, digest in enumerate(files)
    )
    extension = Extension(id="e", variants=variants)
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return PackageRecord(
        id="m",
        version="1.0.0",
        sha256=archive,
        size=7,
        manifest=Manifest(manifest_version=1, id="m", version="1.0.0", extensions=(extension,)),
        installed_at=now,
        updated_at=now,
    )


async def test_nothing_goes_while_a_manifest_cannot_be_read(office: Office) -> None:
    intake = await office.upload("base", {"a": b"1"})
    other = await office.library.intake_archive(in_chunks(tar_gz({"b": b"2"})))
    await office.store.blobs.delete_blob(intake.digest)
    office.clock.move(2 * HOUR)
    with pytest.raises(Retryable, match=intake.digest):
        await office.collect()
    assert other.digest in await blobs_in(office.store)
    await office.upload("again", {"a": b"1"})
    assert (await office.collect()).dropped == 2


async def test_a_manifest_that_stays_away_is_given_up_and_the_others_keep_their_contents(
    office: Office,
) -> None:
    lost = await office.upload("lost", {"a": b"1", "shared": b"s"})
    kept = await office.upload("kept", {"b": b"2", "shared": b"s"})
    await office.store.blobs.delete_blob(lost.digest)
    with pytest.raises(Retryable):
        await office.collect()
    office.clock.move(PATIENCE.total_seconds() - 1)
    with pytest.raises(Retryable):
        await office.collect()
    office.clock.move(2)
    assert (await office.collect()).dropped == 1
    assert sha256(await archive_of(office.library, kept)) == kept.hash


async def test_a_manifest_that_was_damaged_on_disk_is_as_good_as_missing(
    sqlite: Store, scratch: pathlib.Path, clock: MovedClock
) -> None:
    office = Office(sqlite, scratch, clock)
    intake = await office.upload("base", {"a": b"1"})
    (damaged,) = scratch.rglob(intake.digest)
    damaged.write_bytes(b"{")
    with pytest.raises(Retryable, match=intake.digest):
        await office.collect()


async def test_a_clock_that_is_set_forward_makes_nothing_old(office: Office) -> None:
    await office.library.intake_archive(in_chunks(tar_gz({"a": b"1"})))
    office.clock.wall += 10 * (office.clock.wall - office.clock.wall.replace(year=office.clock.wall.year - 1))
    assert (await office.collect()).dropped == 0


async def test_a_collection_is_due_twice_in_the_time_contents_stay(office: Office) -> None:
    assert await office.collector.collect(office.state) == Collected(kept=0, dropped=0)
    assert await office.collector.collect(office.state) is None
    office.clock.move(HOUR / 2)
    assert await office.collector.collect(office.state) is not None
