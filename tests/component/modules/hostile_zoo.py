"""Modules that do the worst they can, as source: one act of one kind in one place."""

from __future__ import annotations

import pathlib
import textwrap
from typing import Any, Final

from small_modules import archive

from corral.testing.module_processes import LINE

PLACES: Final = (
    "import",
    "constructor",
    "on_load",
    "on_start",
    "register_routes",
    "capability_handles",
    "register_commands",
    "on_stop",
    "on_unload",
    "on_reload",
    "on_upgrade",
)
_HEAD: Final = """
import asyncio, ctypes, os, re, signal, socket, struct, subprocess, sys, threading, time
from typing import Protocol

from corral.sdk import CapabilityBinding, Health, PlatformModule, Response
from corral.sdk.protocol.frames import encode_body, encode_frame
from corral.sdk.protocol.frames import Answer, Call, Chunk, Notice


class Greeting(Protocol):
    async def greet(self, *, name: str) -> str: ...


class Greeter:
    async def greet(self, *, name: str) -> str:
        return "hello " + name
"""
_NAMES: Final = {"constructor": "__init__", "task": "beat", "event": "hear"}
_PARAMETERS: Final = {
    "constructor": "self",
    "capability_handles": "self",
    "health_check": "self",
    "task": "self",
    "register_routes": "self, routes",
    "register_commands": "self, commands",
    "route": "self, request",
    "event": "self, event",
    "command": "self, call",
}
_USUAL: Final = {
    "on_load": "await ctx.events.subscribe('GROUP_CREATED', self.hear)",
    "on_start": "await ctx.scheduler.every(3600, self.beat, name='beat')",
    "register_routes": "routes.get('/ping', self.ping)\nroutes.get('/evil', self.route, deadline_ms=ROUTE_MS)\n"
    "routes.put('/take', self.ping, body=bytes, deadline_ms=60_000)",
    "capability_handles": "return [CapabilityBinding(CAPABILITY, Greeting, Greeter)]",
    "register_commands": "commands.add(COMMAND, self.command)",
    "route": "return None",
    "task": "pass",
    "event": "pass",
    "command": "return ['said']",
}
"""What it does there when it does no harm: something of everything that a scope holds."""
_ASYNC: Final = ("on_load", "on_start")


def beast(place: str, code: str, *, id: str, on_loop: bool = False, route_ms: int = 1000) -> str:
    """A module that does `code` in `place` and is harmless everywhere else. On the loop: in `async def`."""
    methods = []
    for name in {**_USUAL, place: ""}:
        if name == "import":
            continue
        usual = _USUAL.get(name, "")
        begun = name == place
        awaits = name in _ASYNC or (begun and on_loop)
        if begun and name in _ASYNC and not on_loop:
            awaits, usual = False, usual.replace("await ", "ctx.run(", 1) + ")" if usual else ""
        body = (
            f"{code}\n{usual}"
            if begun and usual.startswith("return")
            else f"{usual}\n{code if begun else ''}"
        )
        methods.append(_method(name, body, awaits=awaits))
    first = code if place == "import" else ""
    ping = _method("ping", "return {'pong': True}", awaits=False, parameters="self, request")
    body = "\n".join([*methods, ping])
    names = f"CAPABILITY = 'zoo.{id}'\nCOMMAND = 'zoo {id}'\nROUTE_MS = {route_ms}\n"
    return (
        f"{_HEAD}{LINE}\n{names}\n{first}\n\nclass Module(PlatformModule):\n{textwrap.indent(body, '    ')}"
    )


def _method(place: str, body: str, *, awaits: bool, parameters: str = "") -> str:
    shown = parameters or _PARAMETERS.get(place, "self, ctx")
    head = f"{'async ' if awaits else ''}def {_NAMES.get(place, place)}({shown}):"
    return f"{head}\n{textwrap.indent(body.strip() or 'pass', '    ')}\n"


def beast_archive(
    directory: pathlib.Path,
    place: str,
    code: str,
    *,
    id: str = "",
    on_loop: bool = False,
    hook_ms: int = 10_000,
    route_ms: int = 1000,
    version: str = "1.0.0",
    **manifest: Any,
) -> pathlib.Path:
    """Its archive; the id is that of the place unless one is given."""
    id = id or place.replace("_", "-")
    said: dict[str, Any] = {
        "capabilities": {"provides": [{"id": f"zoo.{id}", "version": "1.0.0"}]},
        **manifest,
    }
    source = beast(place, code, id=id, on_loop=on_loop, route_ms=route_ms)
    return archive(directory, id, version, source=source, hook_ms=hook_ms, **said)


def harmless_archive(directory: pathlib.Path, id: str, **more: Any) -> pathlib.Path:
    """With the same registrations and no evil at all."""
    return beast_archive(directory, "on_load", "", id=id, on_loop=True, **more)
