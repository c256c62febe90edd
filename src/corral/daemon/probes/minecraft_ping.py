"""Client of the Minecraft server list ping: the status of 1.7 and later, and the ping before it; and the player count
in it.

Everything that is read has a bound; the caller bounds the time.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

import msgspec

from corral.daemon.probes.port_probes import NotYet, connected

_MOST: Final = 2**31 - 1


class PlayerCount(msgspec.Struct, frozen=True, kw_only=True):
    online: int
    maximum: int


def counted(online: int, maximum: int) -> PlayerCount:
    """The counts that a server reports, limited to the valid range."""
    return PlayerCount(online=min(max(online, 0), _MOST), maximum=min(max(maximum, 0), _MOST))


MAX_STATUS: Final = 1 << 20
"""Largest answer; an icon and a list of mods are a few hundred kilobytes."""
_STATUS_STATE: Final = 1
_ANY_VERSION: Final = 0xFFFFFFFF  # -1: any, to get the server's
_LEGACY_MAX: Final = 1024


class _Players(msgspec.Struct):
    online: int
    max: int


class _PingStatus(msgspec.Struct):
    """The player counts of a status; other fields are skipped and never become objects, of which a megabyte can have
    hundreds of thousands."""

    players: _Players | None = None


class _Silent(NotYet):
    """The server closed the connection instead of answering, as servers do that know only the older ping."""


async def ping(host: str, port: int) -> PlayerCount | None:
    """Request the status of a server; None: it answers without its players. NotYet: it does not answer, or with
    something else."""
    try:
        return await _ping(host, port)
    except _Silent as silent:
        try:
            return await _legacy_ping(host, port)
        except NotYet:
            raise NotYet(str(silent)) from None


async def _ping(host: str, port: int) -> PlayerCount | None:
    name = host.encode()
    handshake = b"\0" + varint(_ANY_VERSION) + varint(len(name)) + name + struct.pack(">H", port)
    handshake += varint(_STATUS_STATE)
    async with connected(host, port) as (reader, writer):
        writer.write(varint(len(handshake)) + handshake + b"\1\0")
        try:
            body = await _read_packet(reader)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _Silent(f"port {port} closed the connection instead of answering a status ping") from error
    return players_of(body)


async def _read_packet(reader: asyncio.StreamReader) -> bytes:
    """The JSON of a status answer."""
    length, _ = await _read_varint(reader)
    if not 3 <= length <= MAX_STATUS:
        raise NotYet(f"the answer is no Minecraft status: a packet of {length} bytes")
    id, taken = await _read_varint(reader)
    size, more = await _read_varint(reader)
    if id != 0 or size > length - taken - more:
        raise NotYet("the answer is no Minecraft status")
    return await reader.readexactly(size)


async def _read_varint(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the number and how many bytes it took."""
    value = 0
    for place in range(5):
        byte = (await reader.readexactly(1))[0]
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value & 0xFFFFFFFF, place + 1
    raise NotYet("the answer is no Minecraft status: a number without an end")


def players_of(body: bytes) -> PlayerCount | None:
    """The players of a status in JSON, whatever else it has; NotYet when it is not a status."""
    try:
        status = msgspec.json.decode(body, type=_PingStatus)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NotYet("the answer is no Minecraft status:", output=body) from None
    if status.players is None:
        return None
    return counted(status.players.online, status.players.max)


async def _legacy_ping(host: str, port: int) -> PlayerCount:
    async with connected(host, port) as (reader, writer):
        writer.write(b"\xfe\x01")
        kind, length = struct.unpack(">BH", await reader.readexactly(3))
        if kind != 0xFF or length > _LEGACY_MAX:
            raise NotYet("the answer is no Minecraft status")
        text = (await reader.readexactly(2 * length)).decode("utf-16-be", "replace")
    parts = text.split("\0" if text.startswith("§1\0") else "§")
    if len(parts) < 3 or not all(part.isdecimal() and len(part) < 12 for part in parts[-2:]):
        raise NotYet("the answer is no Minecraft status")
    return counted(int(parts[-2]), int(parts[-1]))


def varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)
