#!/usr/bin/env python3
"""A game server without a game: something honest to watch, to stop and to crash.

It answers the Minecraft server-list ping on its port, takes commands on its input, and prints what
happens with a time. It cannot be played on. One file, standard library only; it imports nothing of
Corral, so it can be copied anywhere and run by hand:

    python3 server.py --port 25565 --bots --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import pathlib
import random
import signal
import struct
import sys
import threading
from collections.abc import Callable

VERSION_NAME = "Corral demo"
MAX_PACKET = 32_767
CLIENT_SECONDS = 15.0
STATUS, LOGIN = 1, 2
NAMES = ("Ada", "Alan", "Barbara", "Dennis", "Edsger", "Frances", "Grace", "Ken", "Margaret", "Niklaus")


class ProtocolError(Exception):
    """The client violates the protocol; its connection is closed."""


def print_line(text: str) -> None:
    print(f"[{dt.datetime.now().astimezone():%H:%M:%S}] {text}", flush=True)


def pack_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 32-bit two's complement."""
    value &= 0xFFFFFFFF
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def pack_string(text: str) -> bytes:
    encoded = text.encode()
    return pack_varint(len(encoded)) + encoded


def pack_packet(id: int, body: bytes = b"") -> bytes:
    content = pack_varint(id) + body
    return pack_varint(len(content)) + content


class Fields:
    """Reads the fields of one packet, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value & 0xFFFFFFFF
        raise ProtocolError("a number without an end")

    def take(self, count: int) -> bytes:
        taken = self._content[self._position : self._position + count]
        if len(taken) < count:
            raise ProtocolError("a packet that ends too early")
        self._position += count
        return taken

    def string(self) -> str:
        return self.take(self.varint()).decode("utf-8", "replace")


async def read_packet(reader: asyncio.StreamReader) -> Fields:
    length = 0
    for shift in range(0, 21, 7):
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
    else:
        raise ProtocolError("a length of more than three bytes")
    if not 0 < length <= MAX_PACKET:
        raise ProtocolError(f"a packet of {length} bytes")
    return Fields(await reader.readexactly(length))


class Server:
    """The listener, the players and the console of one run."""

    def __init__(self, *, port: int, host: str, max_players: int, motd: str) -> None:
        self._port = port
        self._host = host
        self._max_players = max_players
        self._motd = motd
        self._players: list[str] = []
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._clients: set[asyncio.Task[None]] = set()
        self._commands: dict[str, tuple[str, Callable[[str], None]]] = {
            "help": ("what there is", self._help),
            "list": ("who is online", self._list),
            "say": ("say TEXT to everybody", self._say),
            "spam": ("print N numbered lines", self._spam),
            "stop": ("end in order, exit code 0", self._stop),
            "crash": ("end with a traceback; crash N: with exit code N", self._crash),
        }

    async def run(self, *, bots: random.Random | None, pace: float) -> int:
        """Serve until stopped; the exit code."""
        print_line(f"starting {VERSION_NAME} on port {self._port}")
        try:
            listener = await asyncio.start_server(self._accept, self._host, self._port)
        except OSError as error:
            print_line(f"**** FAILED TO BIND TO PORT! {error.strerror}")
            return 1
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        threading.Thread(target=self._read_input, args=(loop,), name="input", daemon=True).start()
        port = listener.sockets[0].getsockname()[1]
        print_line(f"Done! Listening on port {port}; type 'help' for help")
        coming = asyncio.create_task(self._come_and_go(bots, pace)) if bots else None
        await self._stopping.wait()
        if coming is not None:
            coming.cancel()
        listener.close()
        for client in self._clients:
            client.cancel()
        print_line(f"stopped with exit code {self._exit_code}")
        return self._exit_code

    def _read_input(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: input may be a pipe, a terminal, a file or nothing. Its end does not end the server."""
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._obey, line.strip())

    def _obey(self, line: str) -> None:
        if not line:
            return
        word, _, rest = line.removeprefix("/").partition(" ")
        known = self._commands.get(word.lower())
        if known is None:
            print_line(f"unknown command '{word}'; there are: {', '.join(self._commands)}")
        else:
            known[1](rest.strip())

    def _help(self, _: str) -> None:
        for word, (meaning, _act) in self._commands.items():
            print_line(f"  {word}: {meaning}")

    def _list(self, _: str) -> None:
        names = f": {', '.join(self._players)}" if self._players else ""
        print_line(f"There are {len(self._players)} of a max of {self._max_players} players online{names}")

    def _say(self, text: str) -> None:
        print_line(f"[Server] {text}")

    def _spam(self, count: str) -> None:
        if not count.isdecimal():
            print_line("spam needs a number, for example: spam 1000")
            return
        for number in range(1, int(count) + 1):
            print(f"spam {number} of {count}")
        sys.stdout.flush()

    def _stop(self, why: str = "") -> None:
        print_line(f"stopping{f' because of {why}' if why.startswith('SIG') else ''}")
        self._stopping.set()

    def _crash(self, code: str) -> None:
        if code.isdecimal():
            print_line(f"crashing with exit code {code}, as asked")
            self._exit_code = int(code) & 0xFF
            self._stopping.set()
            return
        print_line("crashing, as asked")
        try:
            raise RuntimeError("somebody typed 'crash'")
        except RuntimeError:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(1)

    async def _come_and_go(self, bots: random.Random, pace: float) -> None:
        """Simulated players: names that appear in the list and go again."""
        while True:
            await asyncio.sleep(bots.uniform(0.3, 1.7) * pace)
            if self._players and (bots.random() < 0.4 or len(self._players) >= self._max_players):
                print_line(f"{self._players.pop(bots.randrange(len(self._players)))} left the game")
            elif away := [name for name in NAMES if name not in self._players]:
                self._players.append(bots.choice(away))
                print_line(f"{self._players[-1]} joined the game")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(self._converse(reader, writer), CLIENT_SECONDS)
        except (TimeoutError, ProtocolError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state, protocol = 0, 0
        while True:
            packet = await read_packet(reader)
            id = packet.varint()
            if state == 0 and id == 0:
                protocol = packet.varint()
                packet.string()  # the name that was dialled
                packet.take(2)  # and the port
                state = packet.varint()
            elif state == STATUS and id == 0:
                writer.write(pack_packet(0, pack_string(json.dumps(self._status(protocol)))))
            elif state == STATUS and id == 1:
                writer.write(pack_packet(1, packet.take(8)))
            elif state == LOGIN and id == 0:
                print_line(f"{packet.string()[:16]!r} wanted to play and was told that this is a demo")
                reason = json.dumps({"text": "This is Corral's demo server: nobody can play here."})
                writer.write(pack_packet(0, pack_string(reason)))
                await writer.drain()
                return
            else:
                raise ProtocolError(f"packet {id} in state {state}")
            await writer.drain()

    def _status(self, protocol: int) -> dict[str, object]:
        """As the server list shows it. The client's own protocol number, so that it shows us at all."""
        signed = struct.unpack(">i", struct.pack(">I", protocol))[0]
        sample = [
            {"name": name, "id": f"00000000-0000-4000-8000-{index:012d}"}
            for index, name in enumerate(self._players)
        ]
        return {
            "version": {"name": VERSION_NAME, "protocol": signed},
            "players": {"max": self._max_players, "online": len(self._players), "sample": sample},
            "description": {"text": self._motd},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description="A game server without a game, for demonstrations.")
    parser.add_argument("--port", type=int, default=25565, help="TCP port; 0 picks a free one")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104
    parser.add_argument("--max-players", type=int, default=20)
    parser.add_argument("--motd", default="A Corral demo server", help="text of the server list")
    parser.add_argument("--motd-file", type=pathlib.Path, help="file that holds that text instead")
    parser.add_argument("--bots", action="store_true", help="let names come and go as players would")
    parser.add_argument("--pace", type=float, default=7.0, help="seconds between them, on average")
    parser.add_argument("--seed", default=None, help="same seed, same comings and goings")
    options = parser.parse_args()
    if options.motd_file is not None:
        options.motd = options.motd_file.read_text(encoding="utf-8").strip()
    bots = random.Random(options.seed) if options.bots else None  # noqa: S311 - a game
    return asyncio.run(serve(options, bots))


async def serve(options: argparse.Namespace, bots: random.Random | None) -> int:
    server = Server(
        port=options.port,
        host=options.host,
        max_players=options.max_players,
        motd=options.motd,
    )
    return await server.run(bots=bots, pace=options.pace)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the thread that reads input cannot be woken
