"""The daemon's client of the keeper: finds it or starts it, and sends it requests.

One connection carries one request. A keeper is started by a short-lived child that exits at once, so it is
neither the daemon's child nor ends with the daemon.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import select
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog

import corral
from corral.errors import Code, Retryable
from corral.runtimes.keeper import keeper_protocol
from corral.runtimes.keeper.keeper_protocol import LOCK, lock_name, socket_name
from corral.runtimes.process.descriptors import readable
from corral.system.threads import to_end

_log = structlog.get_logger("corral.runtimes.process")

_START_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 30.0
_CONNECT_PAUSE: Final = 0.01
_TRIES: Final = 4
_FIRST_BYTES: Final = 65536
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from corral.runtimes.keeper.keeper_main import main; main()"
)


class KeeperFacts(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    start: int


class KeeperDialogue:
    """One request and what follows. Closing it before the workload was released cancels the start."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = keeper_protocol.Frames()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()

    def fileno(self) -> int:
        """The connection's descriptor: readable when there is a message, or when the other side is gone."""
        return self._connection.fileno()

    async def send(self, message: dict[str, Any], *, lock: int = -1, **more: int) -> None:
        """Raises OSError when the other side is gone. `more` are descriptors beside the lock, by name; all of
        them are duplicated before this waits for anything."""
        named = {name: held for name, held in {LOCK: lock, **more}.items() if held >= 0}
        data = keeper_protocol.pack({**message, "descriptors": list(named)} if more else message)
        sent = 0
        if named:
            sent = self._connection.sendmsg([data[:_FIRST_BYTES]], keeper_protocol.rights(*named.values()))
        if sent < len(data):
            await asyncio.get_running_loop().sock_sendall(self._connection, data[sent:])

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other side is gone."""
        message, descriptors = await self.receive_descriptors()
        for descriptor in descriptors:
            os.close(descriptor)
        return message

    async def receive_descriptors(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message, with the descriptors that came with it: they are the caller's."""
        found: list[int] = []
        piece = b""
        try:
            while (message := self._frames.feed(piece)) is None:
                await readable(self._connection.fileno())
                piece = b""
                try:
                    piece, descriptors = keeper_protocol.receive_some(self._connection, 65536)
                except BlockingIOError:
                    continue
                found += descriptors
                if not piece:
                    break
        except ConnectionError:
            message = None
        except BaseException:
            for descriptor in found:
                os.close(descriptor)
            raise
        return message, found


class KeeperClient:
    """Requests to the keeper of one data directory; starts it when there is none."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        place: Callable[[int], Awaitable[None]],
        protocol: int = keeper_protocol.PROTOCOL,
    ) -> None:
        """`place` is called with the pid of each keeper that is found or started, before it is used."""
        self._directory = directory
        self._place = place
        self._protocol = protocol
        self._name = socket_name(protocol)
        self._starting = asyncio.Lock()

    async def ensure(self) -> KeeperFacts:
        """The running keeper, started if need be. One of an older protocol that holds no run is ended."""
        dialogue, answer = await self.ask({"do": "hello"})
        await dialogue.close()
        await self._place(answer["keeper"])
        await self._retire_older()
        return _facts(answer)

    async def quit(self) -> bool:
        """End a keeper that holds no run; True when there is none afterwards."""
        await self._retire_older()
        return await self._quit(self._name)

    async def _retire_older(self) -> None:
        for protocol in range(1, self._protocol):
            if not await self._quit(socket_name(protocol)):
                _log.info("keeper.kept", protocol=protocol, directory=str(self._directory))

    async def _quit(self, name: str) -> bool:
        connection = await self._connect(name)
        if connection is None:
            return True
        async with KeeperDialogue(connection) as dialogue:
            answer = await self._first_answer(dialogue, {"do": "quit"}, -1)
            return answer is None or bool(answer["quit"])

    async def ask(self, message: dict[str, Any], *, lock: int = -1) -> tuple[KeeperDialogue, dict[str, Any]]:
        """Send a request, and the run's lock with it; the dialogue and the first answer.

        A keeper that ends before it answers has started nothing that could go on: the shim gives up when our
        next message does not come. So the request is repeated to another keeper.
        """
        for _ in range(_TRIES):
            dialogue = KeeperDialogue(await self._connection())
            try:
                answer = await self._first_answer(dialogue, message, lock)
            except BaseException:
                await dialogue.close()
                raise
            if answer is not None:
                return dialogue, answer
            await dialogue.close()
        raise Retryable(Code.SPAWN_FAILED, "the keeper ended whenever it was asked", hint=self._log_hint())

    async def rescue(self, run_directory: str, *, lock: int, held: Callable[[], dict[str, int]]) -> None:
        """Request a rescue in the place of a supervisor that was killed; returns when it is recorded, or when
        there is none (the caller checks). `held` are the daemon's descriptors of the run."""
        async with KeeperDialogue(await self._connection()) as dialogue:
            await dialogue.send({"do": "rescue", "run_directory": run_directory}, lock=lock, **held())
            await dialogue.receive()

    async def hold(self, run_directory: str, *, held: Callable[[], dict[str, int]]) -> tuple[bool, int]:
        """Hand a run to the keeper, which may have it already: whether it has it now, and its terminal, or
        -1, which is the caller's then. `held` is called in the moment in which its descriptors are sent."""
        async with asyncio.timeout(_ANSWER_SECONDS), KeeperDialogue(await self._connection()) as dialogue:
            await dialogue.send({"do": "hold", "run_directory": run_directory}, **held())
            answer, descriptors = await dialogue.receive_descriptors()
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return answer is not None and bool(answer.get("held")), descriptors[0] if descriptors else -1

    async def _first_answer(
        self, dialogue: KeeperDialogue, message: dict[str, Any], lock: int
    ) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await dialogue.send(message, lock=lock)
                return await dialogue.receive()
        except TimeoutError:
            raise Retryable(
                Code.SPAWN_FAILED,
                f"the keeper does not answer within {_ANSWER_SECONDS:g} s",
                hint=self._log_hint(),
            ) from None
        except ConnectionError:
            return None

    async def _connection(self) -> socket.socket:
        connection = await self._connect()
        if connection is not None:
            return connection
        async with self._starting:
            ends = asyncio.get_running_loop().time() + _START_SECONDS
            while (connection := await self._connect()) is None:
                if await to_end(self._start):
                    await self._welcome()
                elif asyncio.get_running_loop().time() > ends:
                    raise self._silent()
                else:  # another one has the lock: it is about to listen, or has just died
                    await asyncio.sleep(_CONNECT_PAUSE)
            return connection

    async def _welcome(self) -> None:
        """Move a keeper that was just started into its group, before it gets a request."""
        connection = await self._connect()
        if connection is None:
            return
        async with KeeperDialogue(connection) as dialogue:
            answer = await self._first_answer(dialogue, {"do": "hello"}, -1)
        if answer is not None:
            await self._place(answer["keeper"])

    async def _connect(self, name: str = "") -> socket.socket | None:
        """None when no keeper listens. Through a descriptor of the directory: the path may be longer than an
        address can hold."""
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            while True:
                try:
                    connection.connect(f"/proc/self/fd/{directory}/{name or self._name}")
                except BlockingIOError:
                    await asyncio.sleep(_CONNECT_PAUSE)  # its queue is full
                    continue
                return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(directory)

    def _start(self) -> bool:
        """Blocking; True when our keeper listens, False when another one holds the lock."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        reader, writer = os.pipe()
        try:
            root = pathlib.Path(corral.__file__).parents[1]
            arguments = [str(root), str(self._directory), self._name, str(writer)]
            with subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writer,),
                env={},
                cwd="/",
            ) as starter:
                # The child forks and exits at once. No timeout: a wait with one polls the clock and sleeps,
                # and fails on hosts whose clock is stepped meanwhile.
                starter.wait()
            os.close(writer)
            writer = -1
            status = os.read(reader, 1) if select.select([reader], [], [], _START_SECONDS)[0] else b""
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if status not in (b"0", b"1"):
            raise Retryable(Code.SPAWN_FAILED, "the keeper did not start", hint=self._log_hint())
        if status == b"1":
            _log.info("keeper.started", directory=str(self._directory))
        return status == b"1"

    def _silent(self) -> Retryable:
        holder = (self._directory / lock_name(self._name)).read_text().strip()
        return Retryable(
            Code.SPAWN_FAILED,
            f"the keeper (pid {holder}) of {self._directory} lives but does not listen",
            hint=f"end it with `kill -9 {holder}`; instances live on, and a new one is started",
        )

    def _log_hint(self) -> str:
        return f"see {self._directory / 'keeper.log'}"


def _facts(answer: dict[str, Any]) -> KeeperFacts:
    return KeeperFacts(pid=answer["keeper"], start=answer["start"])
