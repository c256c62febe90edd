"""What a daemon gets when it asks for a template: little, verified, and never in the stream's way."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest
from depot import unpacked

from corral.controller.distribution.node_needs import Needs
from corral.controller.distribution.template_server import TemplateOffers
from corral.domain.ids import NodeId
from corral.domain.template_diff import apply_delta
from corral.domain.templates import decode_manifest, manifest_digest
from corral.errors import CorralError
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.plan_pb2 import TemplateRequest

KILOBYTE = 1024
LARGE = {f"world/r.{n}.mca": os.urandom(40 * KILOBYTE) for n in range(4)}


async def test_a_small_template_comes_whole_and_its_hash_is_that_of_its_bytes(depot):
    await depot.begin()
    version = await depot.upload_used("base", {"server.properties": b"motd=hi\n"})
    talker = await depot.talker()
    data = await talker.ask("base", wanted=version.hash)
    assert data.hash == version.hash == hashlib.sha256(data.tar_gz).hexdigest()
    assert unpacked(data.tar_gz) == {"server.properties": b"motd=hi\n"}
    assert not data.HasField("offer")


async def test_who_has_the_wanted_version_is_told_so_and_gets_nothing(depot):
    await depot.begin()
    version = await depot.upload_used("base", {"a": b"1"})
    talker = await depot.talker()
    for wanted in (version.hash, ""):
        answer = await talker.ask("base", "template_up_to_date", known=version.hash, wanted=wanted)
        assert answer.hash == version.hash


async def test_a_large_template_is_an_offer_whose_manifest_and_contents_are_fetched_by_digest(depot):
    await depot.begin()
    version = await depot.upload_used("world", LARGE)
    talker = await depot.talker()
    data = await talker.ask("world", wanted=version.hash)
    assert data.tar_gz == b""
    assert (data.offer.kind, data.offer.digest) == ("manifest", version.manifest)
    encoded = await talker.fetch(kind="blob", digest=data.offer.digest)
    assert len(encoded) == data.offer.size_bytes
    manifest = decode_manifest(encoded)
    content = await talker.fetch(kind="bundle", digests=[file.digest for file in manifest.files])
    assert content == b"".join(LARGE[file.path] for file in manifest.files)


async def test_a_changed_template_comes_as_the_difference_to_the_known_one(depot):
    await depot.begin()
    files = {**LARGE, **{f"plugins/{n}/config.yml": b"x%d" % n for n in range(200)}}
    first = await depot.upload_used("world", files)
    second = await depot.upload_used("world", {**files, "plugins/7/config.yml": b"changed"})
    talker = await depot.talker()
    data = await talker.ask("world", known=first.hash, wanted=second.hash)
    assert 0 < len(data.delta) < data.offer.size_bytes / 10
    old = await depot.term.templates.tree_of(first)
    assert manifest_digest(apply_delta(old, data.delta)) == data.offer.digest
    strange = await talker.ask("world", known="0" * 64, wanted=second.hash)
    assert strange.delta == b""
    with depot.term.distribution.access.granted(
        NodeId("n1"), Needs(templates=frozenset({("world", first.hash)}))
    ):
        earlier = await talker.ask("world", known=second.hash, wanted=first.hash)
    assert earlier.hash == first.hash


async def test_a_published_daemon_gets_whole_archives_and_an_error_report_for_what_is_too_large(depot):
    await depot.begin()
    version = await depot.upload_used("world", LARGE)
    await depot.upload_used("huge", {"a": os.urandom(5 * 1024 * KILOBYTE)})
    talker = await depot.talker(features=[])
    data = await talker.ask("world")
    assert unpacked(data.tar_gz) == LARGE
    assert hashlib.sha256(data.tar_gz).hexdigest() == version.hash
    report = await talker.ask("huge", "error_report")
    assert report.error_code == "ARCHIVE_TOO_LARGE"
    assert report.context == "template/huge"


async def test_what_is_not_there_is_answered_and_not_left_to_a_timeout(depot):
    await depot.begin()
    await depot.upload_used("base", {"a": b"1"})
    talker = await depot.talker()
    for name, wanted in (("nothing", "f" * 64), ("base", "f" * 64)):
        answer = await talker.ask(name, "template_unavailable", wanted=wanted)
        assert (answer.error_code, answer.hash) == ("TEMPLATE_NOT_FOUND", wanted)
    answer = await talker.ask("x" * 1_000_000, "template_unavailable")
    assert len(answer.template_name) < 1000
    await talker.send(DaemonMessage(template_request=TemplateRequest()))
    assert (await talker.read_until("error_report")).error_report.error_code == "MISSING_FIELD"


async def test_contents_that_are_lost_are_unavailable_and_not_final(depot):
    await depot.begin()
    version = await depot.upload_used("world", LARGE)
    depot.term.templates._remembered.clear()
    await depot.controller.app.store.blobs.delete_blob(version.manifest)
    talker = await depot.talker()
    answer = await talker.ask("world", "template_unavailable", wanted=version.hash)
    assert answer.error_code == "TEMPLATE_UNAVAILABLE"


async def test_a_bundle_goes_on_at_any_offset_over_all_its_blobs(depot):
    await depot.begin()
    await depot.upload_used("world", LARGE)
    manifest = await depot.term.templates.tree_of(depot.state.templates.require("world").record.version())
    digests = [file.digest for file in manifest.files]
    whole = b"".join(LARGE[file.path] for file in manifest.files)
    talker = await depot.talker()
    for offset in (0, 1, 40 * KILOBYTE, 40 * KILOBYTE + 1, len(whole) - 1, len(whole)):
        assert await talker.fetch(kind="bundle", digests=digests, offset=offset) == whole[offset:]
    part = await talker.fetch(kind="bundle", digests=digests, stop_after=70 * KILOBYTE)
    rest = await talker.fetch(kind="bundle", digests=digests, offset=len(part))
    assert part + rest == whole
    twice = await talker.fetch(kind="bundle", digests=digests[:1] * 2)
    assert twice == whole[: 40 * KILOBYTE] * 2


@pytest.mark.parametrize(
    ("opening", "code"),
    [
        ({"kind": "bundle"}, "INVALID_FIELD"),
        ({"kind": "bundle", "digests": ["a" * 64] * 4097}, "INVALID_FIELD"),
        ({"kind": "bundle", "digests": ["../../etc/passwd"]}, "INVALID_FIELD"),
        ({"kind": "bundle", "digests": ["a" * 64]}, "NOT_FOUND"),
        ({"kind": "blob", "digest": "a" * 64}, "NOT_FOUND"),
        ({"kind": "secrets", "digest": "a" * 64}, "INVALID_FIELD"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_the_first_byte(depot, opening, code):
    await depot.begin()
    talker = await depot.talker()
    with pytest.raises(CorralError) as caught:
        await talker.fetch(**opening)
    assert caught.value.code.name == code


@pytest.mark.trap("T29")
async def test_a_node_that_floods_requests_and_does_not_read_keeps_its_session_and_nobody_waits(depot):
    await depot.begin(link__heartbeat_seconds=30)
    await depot.upload_used("base", {"a": os.urandom(50 * KILOBYTE)})
    flooding, other = await depot.talker("n1"), await depot.talker("n2")
    for n in range(2000):
        await flooding.request("base", wanted="" if n % 2 else f"{n:064x}")
    async with asyncio.timeout(5):
        data = await other.ask("base")
    assert len(data.tar_gz) > 50 * KILOBYTE
    session = depot.session("n1")
    assert session is not None
    assert session.outbox.waiting_bytes < 2 * 1024 * KILOBYTE
    assert len(depot.term.distribution._templates._waiting.get("n1", {})) <= 256


async def test_a_request_that_was_under_way_is_answered_in_the_nodes_next_session(depot):
    await depot.begin()
    version = await depot.upload_used("world", LARGE)
    identity = await depot.identity("n1")
    first = await depot.talker(identity=identity)
    await first.request("world", wanted=version.hash)
    second = await depot.talker(identity=identity)
    assert (await second.ask("world", wanted=version.hash)).hash == version.hash
    await first.hang_up()
    await eventually(lambda: not any("distribution/templates/" in t.get_name() for t in asyncio.all_tasks()))


class CountingVersions:
    """A library that knows how often a tree was read."""

    def __init__(self, library) -> None:
        self._library = library
        self.reads: list[int] = []

    async def tree_of(self, version):
        self.reads.append(version.number)
        return await self._library.tree_of(version)


async def test_what_many_nodes_ask_for_after_a_change_is_worked_out_once(depot):
    await depot.begin()
    first = await depot.upload_used("world", LARGE)
    second = await depot.upload_used("world", {**LARGE, "new.txt": b"1"})
    library = CountingVersions(depot.term.templates)
    offers = TemplateOffers(library)
    answers = await asyncio.gather(*(offers.offer("world", second, known=first) for _ in range(20)))
    assert len({data.SerializeToString() for data in answers}) == 1
    assert answers[0].delta
    assert sorted(library.reads) == [1, 2]
