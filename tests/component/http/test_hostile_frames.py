"""WebSocket frames that no library would send: each is answered or ends its own socket, and takes no memory."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import struct

import hypothesis.strategies as st
import pytest
from http_rig import DEADLINE, Rig, http_rig
from hypothesis import HealthCheck, given, settings
from test_console_streams import stalled_socket, talking
from test_hostile_requests import hasty  # noqa: F401 - a fixture
from websockets.frames import Frame, Opcode

from corral.testing.waiting import eventually

MIB = 1024 * 1024
SOCKETS = ("/api/v1/instances/{}/console/ws?after=0", "/api/instances/{}/live-log")

MESSAGES = st.one_of(
    st.sampled_from(
        [
            b'{"credit": 70000}',
            b'{"credit": 0}',
            b'{"command": "x"}',
            b'{"command": "x", "id": "1"}',
            b"{}",
            b"",
            b"\xc3\xa9",
            b"\xff",
            b"[[[",
        ]
    ),
    st.builds(
        lambda value: json.dumps({"credit": value}).encode(),
        st.one_of(st.integers(), st.floats(), st.text(max_size=5)),
    ),
    st.binary(max_size=200),
    st.builds(lambda size: b"x" * size, st.sampled_from([65_535, 70_000, 200_000])),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Frames of clients: of every kind, in fragments, masked or not, cut, with lengths that are not theirs."""
    opcode = draw(
        st.sampled_from(
            [Opcode.TEXT, Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG, Opcode.CLOSE]
        )
    )
    data = draw(MESSAGES)
    form = draw(st.sampled_from(["whole", "whole", "fragments", "unmasked", "reserved", "lying", "noise"]))
    if form == "fragments" and opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
        size = draw(st.integers(1, 40))
        parts = [data[at : at + size] for at in range(0, min(len(data), 4000), size)] or [b""]
        kinds = [opcode, *[Opcode.CONT] * (len(parts) - 1)]
        return b"".join(
            Frame(kind, part, fin=number == len(parts) - 1).serialize(mask=True)
            for number, (kind, part) in enumerate(zip(kinds, parts, strict=True))
        )
    if form == "noise":
        return draw(st.binary(min_size=1, max_size=60))
    if form == "lying":
        return struct.pack(
            "!BBQ", 0x81, 0xFF, draw(st.sampled_from([2**63 - 1, 2**64 - 1, 70_000, 100]))
        ) + os.urandom(8)
    frame = Frame(opcode, data, rsv1=form == "reserved")
    try:
        return frame.serialize(mask=form != "unmasked")
    except Exception:  # a control frame that the library does not send
        return bytes([0x80 | opcode, 0x80 | min(len(data), 125)]) + b"\0\0\0\0" + data[:125]


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(place=st.sampled_from(SOCKETS), sent=st.lists(frames(), min_size=1, max_size=6))
async def test_any_frames_are_answered_or_end_their_own_socket_alone(
    hasty: Rig,  # noqa: F811
    place: str,
    sent: list[bytes],
) -> None:
    if not list(hasty.state.instances):
        await talking(hasty, b"ready\n")
    (record,) = [stored.record for stored in hasty.state.instances]
    sock = await stalled_socket(hasty, place.format(record.id))
    loop = asyncio.get_running_loop()
    with sock:
        try:
            async with asyncio.timeout(DEADLINE):
                await loop.sock_sendall(sock, b"".join(sent))
                await loop.sock_sendall(sock, Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True))
        except (ConnectionError, TimeoutError):
            pass
    await eventually(lambda: len(hasty.leading.streams) == 0)
    assert hasty.server.buffered_bytes() < MIB


@pytest.mark.parametrize("flood", ["fragments", "pings"])
async def test_a_flood_of_fragments_or_pings_takes_no_memory(data: pathlib.Path, flood: str) -> None:
    async with http_rig(data, ping_seconds=0.5 if flood == "pings" else 60.0) as rig:
        record, _, _ = await talking(rig)
        sock = await stalled_socket(rig, f"/api/v1/instances/{record.id}/console/ws")
        loop = asyncio.get_running_loop()
        one = Frame(Opcode.CONT, b"", fin=False) if flood == "fragments" else Frame(Opcode.PING, b"x" * 125)
        begin = Frame(Opcode.TEXT, b"{", fin=False).serialize(mask=True) if flood == "fragments" else b""
        with sock:
            await loop.sock_sendall(sock, begin)
            burst = one.serialize(mask=True) * 1000
            try:
                async with asyncio.timeout(DEADLINE):
                    for _ in range(20_000):
                        await loop.sock_sendall(sock, burst)
                        await asyncio.sleep(0)  # what is sent at once takes no turn of the loop
                        assert rig.server.buffered_bytes() < MIB
                raise AssertionError("all of it was taken")
            except ConnectionError:
                pass  # cut off: too many fragments, or pings of ours that were left unanswered
        await eventually(lambda: len(rig.leading.streams) == 0)
