"""`corral.instance.files` end to end: a module asks, its controller asks the node, the daemon looks."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import os
import pathlib
import threading
from typing import Any

import httpx
import msgspec
import pytest
from module_steps import install, modules_of, term_of
from small_modules import archive

from corral.controller.distribution.instance_files import QUESTIONS_PER_CALLER
from corral.daemon.orders.file_orders import FileOrders
from corral.domain.file_paths import MOST_BYTES, MOST_ENTRIES
from corral.domain.ids import NodeId
from corral.domain.modules.phases import ModulePhase
from corral.errors import Code, CorralError
from corral.sdk.instance_files import INSTANCE_FILES
from corral.sdk.protocol.messages import CapabilityRequest
from corral.system.clock import SystemClock
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import ReadInstanceFile
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

LOOKER = """
import base64
from corral.sdk import INSTANCE_FILES, HostError, InstanceFiles, PlatformModule

class Module(PlatformModule):
    async def on_load(self, ctx):
        self.files = ctx.capabilities.require(INSTANCE_FILES, InstanceFiles)

    def register_routes(self, routes):
        routes.post("/ask", self.ask, body=dict, permission="modules.read")

    async def ask(self, request):
        method = getattr(self.files.call, request.body["method"])
        try:
            answer = await method(**request.body["arguments"])
        except HostError as failure:
            return {"code": failure.code, "kind": type(failure).__name__, "message": failure.message}
        if isinstance(answer, bytes):
            return {"content": base64.b64encode(answer).decode()}
        return {"entries": [[entry.path, entry.kind, entry.size, entry.modified_at] for entry in answer]}
"""
GROUP = {
    "name": "lobby",
    "command": ["sh", "-c", "echo begun > begun.txt; exec sleep 600"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
}


class Looking:
    """A controller with a module that looks, a node, and an instance to be looked into."""

    def __init__(self, controller: LocalController, daemon: LocalDaemon) -> None:
        self.controller = controller
        self.daemon = daemon
        self.directory = daemon.config.data / "running" / "lobby-1"

    async def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        body = {"method": method, "arguments": {"instance_id": "lobby-1", **arguments}}
        answer = await self.controller.call("POST", "/api/v1/modules/looker/ask", body)
        assert isinstance(answer, dict)
        return answer

    async def walk(self, **arguments: Any) -> list[tuple[str, str]]:
        answer = await self.ask("walk", **arguments)
        assert "entries" in answer, answer
        return [(path, kind) for path, kind, *_ in answer["entries"]]

    async def read(self, path: str, **arguments: Any) -> bytes:
        return base64.b64decode((await self.ask("read", path=path, **arguments))["content"])

    async def code(self, method: str, **arguments: Any) -> str:
        return str((await self.ask(method, **arguments))["code"])


@pytest.fixture
async def looking(cluster: LocalCluster, scratch: pathlib.Path) -> Looking:
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    requires = {"requires": [{"id": INSTANCE_FILES, "versionRange": "^1.0"}]}
    answer = await install(controller, archive(scratch, "looker", source=LOOKER, capabilities=requires))
    assert answer.record.phase is ModulePhase.ACTIVE, answer.record
    await controller.call("POST", "/api/v1/groups", GROUP)
    await controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
    found = Looking(controller, daemon)
    await eventually(lambda: (found.directory / "begun.txt").exists())
    return found


async def test_a_module_walks_and_reads_what_its_instance_made(looking: Looking) -> None:
    (looking.directory / "logs").mkdir()
    (looking.directory / "logs/latest.log").write_bytes(bytes(range(256)))
    assert await looking.walk() == [
        ("begun.txt", "file"),
        ("logs", "directory"),
        ("logs/latest.log", "file"),
    ]
    assert await looking.walk(path="logs") == [("logs/latest.log", "file")]
    assert await looking.walk(limit=1) == [("begun.txt", "file")]
    (entry,) = (await looking.ask("walk", path="logs"))["entries"]
    assert entry[2] == 256
    assert entry[3].startswith("20")
    assert await looking.read("begun.txt") == b"begun\n"
    assert await looking.read("logs/latest.log", offset=250) == bytes(range(250, 256))
    assert await looking.read("logs/latest.log", offset=3, length=4) == bytes([3, 4, 5, 6])
    assert await looking.read("logs/latest.log", offset=256) == b""
    assert await looking.read("logs/latest.log", offset=2**62) == b""
    (view,) = modules_of(looking.controller).engine.capabilities.all()
    assert (view.id, view.version, view.consumers) == (INSTANCE_FILES, "1.0.0", ("looker",))


async def test_the_api_lists_and_reads_the_same_files(looking: Looking) -> None:
    at = "/api/v1/instances/lobby-1/files"
    listed = await looking.controller.call("GET", at)
    (entry,) = listed["items"]
    assert (entry["path"], entry["kind"], entry["size"], listed["truncated"]) == (
        "begun.txt",
        "file",
        6,
        False,
    )
    async with httpx.AsyncClient(
        base_url=looking.controller.url,
        headers={"Authorization": f"Bearer {looking.controller.admin_token}"},
    ) as client:
        read = await client.get(f"{at}/content", params={"path": "begun.txt", "offset": 2, "length": 3})
        assert (read.status_code, read.content) == (200, b"gun")
        gone = await client.get(f"{at}/content", params={"path": "../x"})
        assert (gone.status_code, gone.json()["error"]["code"]) == (422, "PATH_REFUSED")


async def test_nothing_outside_the_directory_is_reached(looking: Looking, scratch: pathlib.Path) -> None:
    (scratch / "secret").write_bytes(b"geheim")
    (looking.directory / "out").symlink_to(scratch)
    (looking.directory / "file-out").symlink_to(scratch / "secret")
    (looking.directory / "root").symlink_to("/")
    for path in ("..", "../..", "a/../../x", "/etc/passwd", "out", "root/etc"):
        assert await looking.code("walk", path=path) == "PATH_REFUSED", path
    for path in ("../secret", "/etc/passwd", "out/secret", "file-out", "root/etc/passwd", "x\0y"):
        assert await looking.code("read", path=path) == "PATH_REFUSED", path
    assert await looking.walk() == [
        ("begun.txt", "file"),
        ("file-out", "link"),
        ("out", "link"),
        ("root", "link"),
    ]


async def test_what_is_no_regular_file_is_refused_at_once(looking: Looking) -> None:
    (looking.directory / "dir").mkdir()
    os.mkfifo(looking.directory / "pipe")
    for path in ("dir", "pipe"):
        assert await looking.code("read", path=path) == "PATH_REFUSED", path
    assert await looking.code("walk", path="begun.txt") == "PATH_REFUSED"
    for method in ("walk", "read"):
        assert await looking.code(method, path="nothing/here") == "NOT_FOUND"
    assert ("pipe", "other") in await looking.walk()


async def test_a_huge_directory_is_told_up_to_the_limit_and_comes_in_several_answers(
    looking: Looking,
) -> None:
    many = looking.directory / "many"
    many.mkdir()
    for number in range(MOST_ENTRIES + 50):
        (many / f"{number:05}-{'n' * 40}").touch()
    assert len(await looking.walk(path="many")) == 1000
    told = await looking.walk(path="many", limit=MOST_ENTRIES)
    assert len(told) == MOST_ENTRIES
    assert told == sorted(told)
    assert len(set(told)) == MOST_ENTRIES


async def test_paths_of_a_listing_are_bounded_however_long_they_are(looking: Looking) -> None:
    long = looking.directory / ("d" * 250) / ("e" * 250) / ("f" * 250)
    long.mkdir(parents=True)
    for number in range(2000):
        (long / f"{number:05}{'n' * 240}").touch()
    told = await looking.walk(limit=MOST_ENTRIES)
    assert 500 < len(told) < 2000
    assert sum(len(path) for path, _ in told) <= 1024 * 1024


async def test_a_file_that_grows_is_followed_by_offset(looking: Looking) -> None:
    log = looking.directory / "grow.log"
    log.write_bytes(b"a" * 1000)
    content = await looking.read("grow.log")
    for sign in (b"b", b"c", b"d"):
        with log.open("ab") as file:
            file.write(sign * 1000)
        content += await looking.read("grow.log", offset=len(content))
    assert content == log.read_bytes()
    log.write_bytes(b"anew")
    assert await looking.read("grow.log", offset=len(content)) == b""


async def test_a_large_file_is_read_piece_by_piece(looking: Looking) -> None:
    whole = os.urandom(MOST_BYTES * 2 + 17)
    (looking.directory / "world.dat").write_bytes(whole)
    held = b""
    while piece := await looking.read("world.dat", offset=len(held), length=MOST_BYTES):
        held += piece
    assert held == whole


async def test_arguments_that_make_no_sense_are_refused(looking: Looking) -> None:
    for arguments in ({"limit": 0}, {"limit": -1}, {"limit": MOST_ENTRIES + 1}, {"limit": 2**62}):
        assert await looking.code("walk", **arguments) == "INVALID_FIELD", arguments
    for arguments in ({"offset": -1}, {"offset": 2**63}, {"length": 0}, {"length": MOST_BYTES + 1}):
        assert await looking.code("read", path="begun.txt", **arguments) == "INVALID_FIELD", arguments
    for arguments in ({"path": 7}, {"limit": "many"}, {"path": None}):
        assert await looking.code("walk", **arguments) == "CAPABILITY_TYPE", arguments
    assert await looking.code("walk", instance_id="nobody-1") == "NOT_FOUND"
    assert await looking.code("walk", instance_id="../lobby-1") == "NOT_FOUND"
    assert await looking.code("read", instance_id="", path="begun.txt") == "NOT_FOUND"


@pytest.mark.parametrize(
    "arguments",
    [
        b"\xc1",
        b"",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode({"instance_id": "lobby-1", "more": 1}),
        msgspec.msgpack.encode({"path": "x"}),
        msgspec.msgpack.encode({"instance_id": 7}),
        b"\x81\xabinstance_id\xa2\xff\xfe",
    ],
)
async def test_bytes_that_are_no_arguments_are_refused(cluster: LocalCluster, arguments: bytes) -> None:
    """A module need not speak through our SDK."""
    registry = modules_of(await cluster.controller()).engine.capabilities
    for method in ("walk", "read"):
        with pytest.raises(CorralError) as caught:
            await registry.call(
                None,
                CapabilityRequest(
                    capability=INSTANCE_FILES, method=method, arguments=msgspec.Raw(arguments), deadline_ms=0
                ),
            )
        assert caught.value.code is Code.CAPABILITY_TYPE


async def test_a_node_that_is_away_is_said_to_be_and_can_be_asked_when_it_is_back(
    cluster: LocalCluster, looking: Looking
) -> None:
    sessions = term_of(looking.controller).sessions
    await looking.daemon.app.stop()
    await eventually(lambda: sessions.find(NodeId("n1")) is None)
    for method, arguments in (("walk", {}), ("read", {"path": "begun.txt"})):
        assert await looking.code(method, **arguments) == "NODE_OFFLINE"
    await cluster.restart(looking.daemon)
    await eventually(lambda: sessions.find(NodeId("n1")) is not None)
    assert await looking.read("begun.txt") == b"begun\n"


async def test_an_instance_whose_files_are_gone_has_none(looking: Looking) -> None:
    looking.directory.rename(looking.directory.with_name("elsewhere"))
    assert await looking.code("walk") == "NOT_FOUND"
    looking.directory.with_name("elsewhere").rename(looking.directory)
    assert await looking.walk() == [("begun.txt", "file")]


async def test_many_questions_at_once_are_answered_or_put_off(looking: Looking) -> None:
    """Not by way of the API: its test client takes the threads that the daemon beside it works in."""
    files = term_of(looking.controller).distribution

    async def read() -> bytes | Code:
        try:
            part = await files.read_file("lobby-1", "begun.txt", offset=0, length=100, caller="c")
        except CorralError as error:
            return error.code
        return part.content

    answers = await asyncio.gather(*(read() for _ in range(QUESTIONS_PER_CALLER + 3)))
    assert answers.count(b"begun\n") == QUESTIONS_PER_CALLER
    assert answers.count(Code.RATE_LIMITED) == 3


async def test_a_daemon_trusts_its_own_record_and_answers_every_frame(looking: Looking) -> None:
    supervision = looking.daemon.app.supervision
    orders = FileOrders(supervision.supervisor, supervision.directories, clock=SystemClock())
    answers: asyncio.Queue[DaemonMessage] = asyncio.Queue()

    def reply(message: DaemonMessage) -> bool:
        answers.put_nowait(message)
        return True

    async def error(**fields: str) -> str:
        asked = {"request_id": "r", "group": "lobby", "instance_id": "lobby-1", "path": "begun.txt", **fields}
        orders.handlers["read_instance_file"](
            reply, ControllerMessage(read_instance_file=ReadInstanceFile(**asked))
        )
        async with asyncio.timeout(20):
            answer = (await answers.get()).instance_file_content
        assert answer.request_id == asked["request_id"]
        return answer.error.partition(":")[0]

    assert await error() == ""
    for field in ("request_id", "group", "instance_id", "path"):
        assert await error(**{field: ""}) == "MISSING_FIELD", field
    for id in ("lobby-2", "..", "../static", "lobby-1/..", "/"):
        assert await error(instance_id=id) == "NOT_FOUND", id
    assert await error(group="other") == "NOT_FOUND"
    await orders.close()


@pytest.mark.trap("T42")
async def test_files_are_read_in_threads_apart_from_those_of_everything_else(looking: Looking) -> None:
    supervision = looking.daemon.app.supervision
    orders = FileOrders(supervision.supervisor, supervision.directories, clock=SystemClock())
    asked = ReadInstanceFile(request_id="r", group="lobby", instance_id="lobby-1", path="begun.txt")
    loop, over = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, over.wait)
    try:
        async with asyncio.timeout(20):
            assert (await orders.read(asked)).content == b"begun\n"
    finally:
        over.set()
        await busy
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor())
        await orders.close()


async def test_a_module_that_wants_another_version_waits_for_it(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    controller = await cluster.controller()
    wants = {"requires": [{"id": INSTANCE_FILES, "versionRange": ">=2"}]}
    answer = await install(controller, archive(scratch, "looker", source=LOOKER, capabilities=wants))
    assert answer.record.phase is ModulePhase.WAITING
    assert answer.record.reason == f"waiting_for_capability:{INSTANCE_FILES}"
