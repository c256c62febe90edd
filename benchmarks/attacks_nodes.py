"""Attacks of a node with a valid certificate, for P20: long handshakes, and floods about what is not its own."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from benchmarks.trees import fresh_directory
from corral.daemon.node.identity import Identity
from corral.errors import CorralError
from corral.testing.api_calls import call
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.frames import CONSOLE_BLOCKS, MOST_MESSAGES
from corral.wire.handshake_lists import portions_of
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake

if TYPE_CHECKING:
    from benchmarks.p20_under_attack import Attack, Target

_LISTED: Final = 60_000
_BATCH: Final = 200


async def _rogue(target: Target, name: str) -> Identity:
    """Enrolled like any other. What that logs must not stand before the word that the attack has begun."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    made: dict[str, Any] = await call(
        f"http://{target.http}", target.admin, "POST", "/api/v1/nodes/join-tokens", {"node_id": name}
    )
    return await enrolled_identity(fresh_directory(), token=made["token"], node_id=name)


def _claims() -> list[wire.RunningInstance]:
    return [
        wire.RunningInstance(
            instance_id=f"ghost-{number}",
            group="ghost",
            incarnation=number * 1024,
            state=wire.INSTANCE_STATE_RUNNING,
        )
        for number in range(1, _LISTED + 1)
    ]


async def long_handshakes(target: Target, begun: Callable[[], None]) -> None:
    """60,000 running instances that nobody knows, in portions, again and again."""
    identity = await _rogue(target, "long-handshakes")
    portions = portions_of(Handshake(running_instances=_claims()))
    for number in itertools.count():
        async with ScriptedDaemon(identity, target.grpc) as daemon:
            await daemon.greet(portions_follow=True, run_id=f"run-{number}")
            for portion in portions:
                await daemon.send(DaemonMessage(handshake_portion=portion))
            if number == 0:
                begun()
            await daemon.read_until("ping")  # so long it is taken in, and nothing else is sent


def _foreign(number: int) -> Iterator[DaemonMessage]:
    """Each about an instance of somebody else."""
    id = f"ghost-{number}"
    yield DaemonMessage(
        crash_report=wire.CrashReport(
            instance_id=id, group="ghost", incarnation=1024, log_tail=["x" * 2000] * 5, exit_code=9
        )
    )
    yield DaemonMessage(
        instance_status=wire.InstanceStatusUpdate(
            instance_id=id, incarnation=1024, state=wire.INSTANCE_STATE_RUNNING
        )
    )
    yield DaemonMessage(stop_instance_ack=wire.StopInstanceAck(instance_id=id, error_code="NOT_FOUND"))
    block = wire.ConsoleBlock(instance_id=id, incarnation=1024, data=b"forged\n" * 100)
    yield DaemonMessage(console_batch=wire.ConsoleBatch(blocks=[block]))


async def foreign_reports(target: Target, begun: Callable[[], None]) -> None:
    """Crashes, states, answers and console bytes of others, as fast as they are confirmed."""
    identity = await _rogue(target, "foreign-reports")
    sequence = itertools.count(1)
    async with ScriptedDaemon(identity, target.grpc) as daemon:
        await daemon.greet()
        for round in itertools.count():
            messages: list[DaemonMessage] = []
            for number in range(_BATCH // 4):
                messages += _foreign(round * _BATCH + number)
            last = 0
            for message in messages:
                if message.WhichOneof("payload") != "console_batch":
                    message.spool_sequence = last = next(sequence)
            await daemon.send(DaemonMessage(batch=DaemonBatch(messages=messages)))
            if round == 0:
                begun()
            while (await daemon.read_until("spool_ack")).spool_ack.sequence < last:
                pass


async def frames_of_many_parts(target: Target, begun: Callable[[], None]) -> None:
    """As many blocks of others' consoles as a frame may hold, and then a frame of ten times as many."""
    identity = await _rogue(target, "many-parts")
    blocks = [wire.ConsoleBlock(instance_id="ghost")] * CONSOLE_BLOCKS
    full = [DaemonMessage(console_batch=wire.ConsoleBatch(blocks=blocks))] * (
        MOST_MESSAGES // CONSOLE_BLOCKS - 1
    )
    allowed = DaemonMessage(batch=DaemonBatch(messages=full)).SerializeToString()
    refused = DaemonMessage(console_batch=wire.ConsoleBatch(blocks=blocks * 200)).SerializeToString()
    for number in itertools.count():
        async with ScriptedDaemon(identity, target.grpc) as daemon:
            await daemon.greet(run_id=f"run-{number}")
            await daemon.send(allowed)
            await daemon.send(refused)
            if number == 0:
                begun()
            with contextlib.suppress(CorralError):
                while True:
                    await daemon.read()


ATTACKS: Final[Mapping[str, Attack]] = {
    "node: 60k handshakes": long_handshakes,
    "node: reports about others": foreign_reports,
    "node: frames of many parts": frames_of_many_parts,
}
