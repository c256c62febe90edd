"""Real daemons that are killed at drawn moments of their preparations."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import pathlib
import random
import tarfile
import time

import grpc
import pytest

from corral.domain.groups.group import RestartSpec
from corral.domain.groups.plans import Plan, PlanTemplate, encode_plan
from corral.domain.ids import first_incarnation
from corral.testing.processes import ProcessCluster
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION
from corral.wire.features import FEATURES
from corral.wire.v1.instance_pb2 import StartInstance
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import HandshakeAck
from corral.wire.v1.plan_pb2 import CompositionPlan, TemplateData

pytestmark = pytest.mark.system
ROUNDS = 6
FILES = 250
WORLD = b"years of work\n"


def archive(number: int) -> bytes:
    """The template of a round: every file says which round it is of, at its beginning and its end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for position in range(FILES):
            entry = tarfile.TarInfo(f"d{position % 9}/f{position}")
            body = content(number, position)
            entry.size, entry.mode = len(body), 0o644
            tar.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def content(number: int, position: int) -> bytes:
    return b"%d %%INSTANCE_ID%% " % number + b"x" * (position * 20) + b" %d\n" % number


def plan(template: PlanTemplate, *, static: bool) -> Plan:
    return Plan(
        group="g",
        runtime="process",
        command=("sh", "-c", "test -e world || echo years of work > world"),
        args=(),
        env={},
        variables={},
        templates=(template,),
        substitute=("d0/**",),
        static=static,
        memory_mb=0,
        cpu=0.0,
        pids=0,
        console_mb=16,
        max_players=0,
        run_as="",
        isolate="shared",
        stdin="fifo",
        tty=False,
        line_buffered=False,
        stop=(),
        startup_timeout_seconds=60,
        min_alive_ms=0,
        max_lifetime_seconds=0,
        crash_keep_seconds=3600,
        restart=RestartSpec(attempts=0),
        restart_on="never",
    )


def start(id: str, number: int, template: PlanTemplate, *, static: bool) -> ControllerMessage:
    record = encode_plan(plan(template, static=static))
    return ControllerMessage(
        epoch=1,
        start_instance=StartInstance(
            instance_id=id,
            group="g",
            incarnation=first_incarnation(number + 1),
            plan_hash=record.hash,
            composition_plan=CompositionPlan(plan_hash=record.hash, canonical_json=record.body.encode()),
        ),
    )


class TemplateController:
    """Greets, orders the starts of this round again and again, and hands out its templates."""

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.frames: list[ControllerMessage] = []
        self.ordered = asyncio.Event()
        self.started: set[int] = set()

    async def __call__(self, context) -> None:
        await context.read()
        ack = HandshakeAck(
            session_id=f"s{time.time_ns()}",
            heartbeat_interval_ms=60_000,
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            features=FEATURES,
            epoch=1,
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        ordering = asyncio.create_task(self._order(context))
        try:
            while message := await context.read():
                if not hasattr(message, "WhichOneof"):
                    break
                found = message.batch.messages if message.WhichOneof("payload") == "batch" else [message]
                for each in found:
                    await self._answer(context, each)
        finally:
            ordering.cancel()
            await asyncio.gather(ordering, return_exceptions=True)

    async def _order(self, context) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                for frame in self.frames:
                    await context.write(frame)
                self.ordered.set()
                await asyncio.sleep(0.1)

    async def _answer(self, context, message) -> None:
        if message.HasField("template_request"):
            wanted = message.template_request.wanted_hash
            data = TemplateData(template_name=message.template_request.template_name, hash=wanted)
            data.tar_gz = self.archives[wanted]
            await context.write(ControllerMessage(template_data=data, epoch=1))
        elif message.HasField("start_instance_ack") and message.start_instance_ack.pid:
            self.started.add(message.start_instance_ack.incarnation)

    def template(self, number: int) -> PlanTemplate:
        packed = archive(number)
        hash = hashlib.sha256(packed).hexdigest()
        self.archives[hash] = packed
        return PlanTemplate(name="base", version=number, hash=hash)


def check_whole(directory: pathlib.Path, id: str, *, one_round: bool) -> None:
    """Every file is there and whole; `one_round`: all are of one and the same template."""
    rounds = set()
    for position in range(FILES):
        body = (directory / f"d{position % 9}" / f"f{position}").read_bytes()
        number = int(body.split()[0])
        wanted = content(number, position)
        if position % 9 == 0:
            wanted = wanted.replace(b"%INSTANCE_ID%", id.encode())
        assert body == wanted, f"{directory} holds half of f{position}"
        rounds.add(number)
    assert not one_round or len(rounds) == 1, f"{directory} holds files of rounds {rounds}"


@pytest.mark.trap("T14")
@pytest.mark.timeout(300)
async def test_a_daemon_killed_at_any_moment_of_a_preparation_leaves_nothing_half_made(scratch, reaper):
    seed = time.time_ns()
    print(f"seed {seed}")
    chance, data, script = random.Random(seed), scratch / "node", TemplateController()
    world = data / "static" / "static-1" / "world"
    async with ScriptedController(script) as controller, ProcessCluster(scratch) as cluster:
        controller.enrol(data, "killed-node")
        command = ["daemon", "--data", str(data), "--controller", controller.address]
        environment = {"CORRAL_INSTANCES_DEVELOPMENT": "true", "CORRAL_DISK_RESERVE_MB": "0"}
        script.frames = [start("static-1", 0, script.template(0), static=True)]
        daemon = cluster.start(*command, environment=environment)
        await eventually(world.exists, deadline=30)
        await daemon.kill()
        for number in range(1, ROUNDS):
            template = script.template(number)
            script.frames = [
                start("static-1", number, template, static=True),
                start(f"lobby-{number}", number, template, static=False),
            ]
            script.ordered.clear()
            daemon = cluster.start(*command, environment=environment)
            async with asyncio.timeout(30):
                await script.ordered.wait()
            await asyncio.sleep(chance.random() * 0.5)  # the moment is the point
            await daemon.kill()
            assert world.read_bytes() == WORLD
            check_whole(world.parent, "static-1", one_round=False)
            for made in (data / "running").iterdir():
                if not made.name.startswith("."):
                    check_whole(made, made.name, one_round=True)
        last = script.template(ROUNDS)
        script.frames = [start("static-1", ROUNDS, last, static=True)]
        daemon = cluster.start(*command, environment=environment)
        await eventually(
            lambda: first_incarnation(ROUNDS + 1) in script.started,
            deadline=60,
            state=lambda: (data / "logs" / "daemon.log").read_text()[-4000:],
        )
        assert world.read_bytes() == WORLD
        check_whole(world.parent, "static-1", one_round=True)
        for staging in (data / "static" / ".staging", data / "running" / ".staging"):
            assert not staging.exists() or not list(staging.iterdir())
        assert await daemon.terminate() == 0
