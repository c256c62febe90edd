"""Controllers that speak the published protocol only, or that answer wrongly, late or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os

import pytest
from cache_rig import CacheNode, archive

from corral.domain.groups.plans import PlanArtifact, PlanTemplate
from corral.domain.templates import TemplateFile, TemplateManifest, encode_manifest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.testing.scripted_peers import ScriptedController
from corral.version import PROTOCOL_VERSION
from corral.wire import features
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, HandshakeAck
from corral.wire.v1.plan_pb2 import (
    DataOffer,
    TemplateData,
    TemplateRequest,
    TemplateUnavailable,
    TemplateUpToDate,
)

FILES = {"a.yml": b"a: 1\n", "plugins/b.jar": b"b" * 5000}


class Peer:
    """Answers template requests the way a test says."""

    def __init__(self, *known: str) -> None:
        self.features = known
        self.asked: list[TemplateRequest] = []
        self.answer = lambda request: []

    async def script(self, context) -> None:
        await context.read()
        ack = HandshakeAck(
            session_id="s1",
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            epoch=1,
            features=self.features,
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        while isinstance(frame := await context.read(), DaemonMessage):
            batch = frame.WhichOneof("payload") == "batch"
            for message in frame.batch.messages if batch else [frame]:
                if message.WhichOneof("payload") == "template_request":
                    self.asked.append(message.template_request)
                    for answer in self.answer(message.template_request):
                        answer.epoch = 1
                        await context.write(answer)


@contextlib.asynccontextmanager
async def connected(scratch, peer: Peer, **more):
    async with (
        ScriptedController(peer.script) as controller,
        CacheNode(scratch / "n1", **{"link_wait": 0.2, "answer_seconds": 0.3, **more}) as node,
    ):
        identity = controller.enrol(node.data, "n1")
        await node.connect(controller.address, identity)
        yield node


def whole(name: str, data: bytes, hash: str | None = None) -> ControllerMessage:
    found = hashlib.sha256(data).hexdigest() if hash is None else hash
    return ControllerMessage(template_data=TemplateData(template_name=name, hash=found, tar_gz=data))


def named(data: bytes, name: str = "lobby") -> PlanTemplate:
    return PlanTemplate(name=name, version=1, hash=hashlib.sha256(data).hexdigest())


async def refusal(node, template) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await node.files(template)
    return caught.value


async def test_a_plain_controller_sends_whole_archives(scratch):
    data = archive({**FILES, "big.bin": os.urandom(3 * 1024 * 1024)})
    peer = Peer()
    peer.answer = lambda request: [whole("lobby", data)]
    async with connected(scratch, peer) as node:
        files = await node.files(named(data))
        assert files["a.yml"] == FILES["a.yml"]
        assert len(files["big.bin"]) == 3 * 1024 * 1024
        assert await node.files(named(data)) == files
    assert len(peer.asked) == 1, "what is here is not asked for"


async def test_a_plain_controller_is_asked_with_the_hash_we_have_and_may_say_up_to_date(scratch):
    data = archive(FILES)
    peer = Peer()
    peer.answer = lambda request: (
        [ControllerMessage(template_up_to_date=TemplateUpToDate(template_name="lobby"))]
        if request.known_hash == named(data).hash
        else [whole("lobby", data)]
    )
    current = PlanTemplate(name="lobby", version=0, hash="")
    async with connected(scratch, peer) as node:
        assert await node.files(current) == FILES
        assert await node.files(current) == FILES
        assert [request.known_hash for request in peer.asked] == ["", named(data).hash]
        async with node.cache.use() as use:
            manifest = await use.template(current)
            use.content(manifest.files[0].digest).unlink()
        assert await node.files(current) == FILES
    assert peer.asked[-1].known_hash == "", "what is not whole any more is not claimed to be known"


async def test_another_version_than_the_plan_names_is_never_used(scratch):
    data = archive(FILES)
    peer = Peer()
    peer.answer = lambda request: [whole("lobby", data)]
    async with connected(scratch, peer) as node:
        error = await refusal(node, PlanTemplate(name="lobby", version=1, hash="0" * 64))
        assert isinstance(error, Retryable)
        assert error.code is Code.TEMPLATE_UNAVAILABLE
        assert node.cache.status().templates == []


@pytest.mark.system
async def test_an_archive_with_another_digest_than_it_says_is_never_used(scratch):
    data = archive(FILES)
    peer = Peer()
    peer.answer = lambda request: [whole("lobby", data + b"x", hash=named(data).hash)]
    async with connected(scratch, peer) as node:
        error = await refusal(node, named(data))
        assert isinstance(error, Retryable)
        assert list((node.data / "cache" / "contents").rglob("*" * 1 + "?" * 40)) == []


async def test_an_archive_with_a_path_that_leads_elsewhere_is_refused_for_good(scratch):
    data = archive({"../../../evil": b"x"})
    peer = Peer()
    peer.answer = lambda request: [whole("lobby", data)]
    async with connected(scratch, peer) as node:
        error = await refusal(node, named(data))
    assert isinstance(error, Rejected)
    assert error.code is Code.PATH_REFUSED
    assert "evil" in str(error)


@pytest.mark.system
async def test_a_controller_that_never_answers_is_given_up_in_time(scratch):
    peer = Peer()
    async with connected(scratch, peer, answer_seconds=0.05) as node:
        error = await refusal(node, PlanTemplate(name="lobby", version=1, hash="0" * 64))
    assert isinstance(error, Retryable)
    assert error.code is Code.TEMPLATE_UNAVAILABLE
    assert len(peer.asked) > 1, "it is asked more than once"


async def test_a_late_answer_to_an_older_question_is_passed_over(scratch):
    old, new = archive(FILES), archive({"new": b"n"})
    peer = Peer(features.TEMPLATES, features.DATA)
    peer.answer = lambda request: [whole("lobby", old), whole("other", old), whole("lobby", new)]
    async with connected(scratch, peer) as node:
        assert await node.files(named(new)) == {"new": b"n"}


@pytest.mark.parametrize(
    ("code", "kind", "ours"),
    [
        ("TEMPLATE_NOT_FOUND", Rejected, Code.TEMPLATE_NOT_FOUND),
        ("ARCHIVE_TOO_LARGE", Rejected, Code.ARCHIVE_TOO_LARGE),
        ("TEMPLATE_UNAVAILABLE", Retryable, Code.TEMPLATE_UNAVAILABLE),
        ("SOMETHING_NEW", Retryable, Code.TEMPLATE_UNAVAILABLE),
    ],
)
async def test_a_refusal_says_whether_it_is_worth_asking_again(scratch, code, kind, ours):
    peer = Peer(features.TEMPLATES, features.DATA)
    peer.answer = lambda request: [
        ControllerMessage(
            template_unavailable=TemplateUnavailable(
                template_name="lobby", hash=request.wanted_hash, error_code=code, error_message="no"
            )
        )
    ]
    async with connected(scratch, peer) as node:
        error = await refusal(node, PlanTemplate(name="lobby", version=1, hash="0" * 64))
    assert isinstance(error, kind)
    assert error.code is ours


@pytest.mark.parametrize("context", ["template/lobby", "lobby", "template_request"])
@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (Code.TEMPLATE_NOT_FOUND, Code.TEMPLATE_NOT_FOUND),
        (Code.ARCHIVE_TOO_LARGE, Code.ARCHIVE_TOO_LARGE),
        (Code.TEMPLATE_UNAVAILABLE, Code.TEMPLATE_UNAVAILABLE),
    ],
)
async def test_an_error_report_of_a_plain_controller_ends_the_wait_at_once(scratch, code, ours, context):
    peer = Peer()
    peer.answer = lambda request: [
        ControllerMessage(
            error_report=ErrorReport(error_code="CACHE_DOWNLOAD_FAILED", context="another/thing")
        ),
        ControllerMessage(
            error_report=ErrorReport(error_code=code.name, error_message="no", context=context)
        ),
    ]
    async with connected(scratch, peer, answer_seconds=600) as node:
        error = await refusal(node, PlanTemplate(name="lobby", version=1, hash="0" * 64))
    assert error.code is ours
    assert len(peer.asked) == 1


async def test_an_offer_that_cannot_be_fetched_is_an_error_that_is_tried_again(scratch):
    manifest = TemplateManifest(files=(TemplateFile(path="a", mode=0o644, size=1, digest="0" * 64),))
    data = encode_manifest(manifest)
    offer = DataOffer(digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data), kind="manifest")
    peer = Peer(features.TEMPLATES, features.DATA)
    peer.answer = lambda request: [
        ControllerMessage(
            template_data=TemplateData(template_name="lobby", hash=request.wanted_hash, offer=offer)
        )
    ]
    async with connected(scratch, peer) as node:
        error = await refusal(node, PlanTemplate(name="lobby", version=1, hash="1" * 64))
        assert isinstance(error, CorralError)
        assert node.cache.status().templates == []


async def test_an_artifact_without_url_cannot_come_from_a_plain_controller(scratch):
    async with connected(scratch, Peer()) as node, node.cache.use() as use:
        with pytest.raises(Rejected) as caught:
            await use.artifact(PlanArtifact(file="server.jar", sha256="0" * 64))
    assert caught.value.code is Code.ARTIFACT_REFUSED


async def test_questions_about_different_templates_do_not_wait_for_each_other(scratch):
    data = {name: archive({name: b"x"}) for name in ("one", "two", "three")}
    peer = Peer()
    gathered: list[TemplateRequest] = []

    def answer(request: TemplateRequest) -> list[ControllerMessage]:
        gathered.append(request)
        if len(gathered) < 3:
            return []
        return [whole(one.template_name, data[one.template_name]) for one in reversed(gathered)]

    peer.answer = answer
    async with connected(scratch, peer, answer_seconds=10) as node:
        found = await asyncio.gather(*(node.files(named(data[name], name)) for name in data))
    assert found == [{name: b"x"} for name in data]
