"""Attacks of modules, for P20: what an installed one sends, and archives that are only looked at."""

from __future__ import annotations

import asyncio
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx

from corral.testing.archives import zipped
from corral.testing.module_processes import LINE

if TYPE_CHECKING:
    from benchmarks.p20_under_attack import Attack, Target

_ENTRIES: Final = 45_000
_ALTERNATIVES: Final = 3000
_ITEMS: Final = 20_000
_SOURCE: Final = """
import threading
from corral.sdk import PlatformModule

def text(value):
    return bytes([0xa0 | len(value)]) + value.encode()

def frames():
    method, body = METHOD, BODY
    number = 10**6
    while os.path.exists("/proc/ATTACKER"):
        number += 1
        if NOTICE:
            frame = b"\\x93" + text("notice") + text(method) + body
        else:
            frame = b"\\x95" + text("call") + b"\\xce" + number.to_bytes(4, "big") + text(method) + body + b"\\xcd\\x03\\xe8"
        yield len(frame).to_bytes(4, "little") + frame

def flood():
    sock = line()
    for frame in frames():
        sock.sendall(frame)

class Module(PlatformModule):
    async def on_start(self, ctx):
        threading.Thread(target=flood, daemon=True).start()
"""
_LISTS: Final = "b'\\xdd' + ({count}).to_bytes(4, 'big') + b'\\x90' * {count}"
_PUBLISHED: Final = "b'\\x82' + text('type') + text('X') + text('data') + b'\\x81\\xa1a' + " + _LISTS
_SAMPLES: Final = (
    "b'\\x81' + text('samples') + b'\\xdd' + (2000).to_bytes(4, 'big') + b''.join("
    "b'\\x84' + text('name') + text('a') + text('kind') + text('gauge') + text('value') + b'\\x01' + text('labels')"
    " + b'\\x81' + text('n') + text(str(n)) for n in range(2000))"
)
_DOCUMENT: Final = 'b\'{"a": [\' + b",".join([b"[]"] * 19_000) + b"]}"'
_INSERTED: Final = (
    "b'\\x82' + text('collection') + text('c') + text('documents') + b'\\x91\\x81' + text('body')"
    " + b'\\xc6' + len({document}).to_bytes(4, 'big') + {document}"
).format(document=f"({_DOCUMENT})")


def _hostile(id: str, method: str, body: str, *, notice: bool) -> bytes:
    """A module that sends the same frame for as long as this process lives, past the SDK."""
    source = (
        (LINE + _SOURCE).replace("METHOD", repr(method)).replace("BODY", body).replace("NOTICE", repr(notice))
    )
    manifest = {
        "manifestVersion": 1,
        "id": id,
        "version": "1.0.0",
        "backend": {"controller": {"entrypoint": "bench_module:Module"}},
        "storage": {"documents": True},
        "events": {"publishes": ["X"]},
    }
    content = source.replace("ATTACKER", str(os.getpid())).encode()
    return zipped({"module.json": json.dumps(manifest).encode(), "bench_module.py": content})


def _client(target: Target) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {target.admin}"}
    return httpx.AsyncClient(base_url=f"http://{target.http}/api/v1", headers=headers, timeout=120.0)


def _sends(id: str, method: str, body: str, *, notice: bool = False) -> Attack:
    async def attack(target: Target, begun: Callable[[], None]) -> None:
        """It is started again whenever it was cut off for good."""
        async with _client(target) as client:
            archive = _hostile(id, method, body, notice=notice)
            answer = await client.post("/modules", files={"file": ("m.cmod", archive)})
            answer.raise_for_status()
            begun()
            while True:
                await asyncio.sleep(0.1)
                if (await client.get(f"/modules/{id}")).json()["phase"] == "FAILED":
                    await client.post(f"/modules/{id}/recover")

    return attack


def _looked_at(make: Callable[[], bytes]) -> Attack:
    async def attack(target: Target, begun: Callable[[], None]) -> None:
        archive = make()
        begun()
        async with _client(target) as client:
            while True:
                await client.post("/modules", params={"dry_run": "true"}, files={"file": ("m.cmod", archive)})

    return attack


def _costly_schema() -> bytes:
    items: dict[str, Any] = {"anyOf": [*[{"const": 1}] * _ALTERNATIVES, {"const": 0}]}
    config = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": items, "default": [0] * _ITEMS}},
    }
    manifest = {
        "manifestVersion": 1,
        "id": "costly",
        "version": "1.0.0",
        "backend": {"controller": {"entrypoint": "costly:Module"}},
        "config": config,
    }
    return zipped({"module.json": json.dumps(manifest).encode(), "costly.py": b"class Module: ...\n"})


def _many_entries() -> bytes:
    manifest = {
        "manifestVersion": 1,
        "id": "many",
        "version": "1.0.0",
        "backend": {"controller": {"entrypoint": "many:Module"}},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("module.json", json.dumps(manifest))
        archive.writestr("many.py", "class Module: ...\n")
        for number in range(_ENTRIES):
            archive.writestr(f"d{number % 200}/f{number}", b"")
    return packed.getvalue()


ATTACKS: Final[Mapping[str, Attack]] = {
    "module: frames of 4 MiB": _sends("large", "events.publish", _LISTS.format(count=4_000_000)),
    "module: events at their limit": _sends("events", "events.publish", _PUBLISHED.format(count=9_900)),
    "module: samples at their limit": _sends("samples", "metrics.record", _SAMPLES, notice=True),
    "module: documents at their limit": _sends("documents", "documents.insert", _INSERTED),
    "module: schema times value": _looked_at(_costly_schema),
    "module: archive of 45k entries": _looked_at(_many_entries),
}
