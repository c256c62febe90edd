"""The demo of `corral up`: a template, a group of small servers and a module, which ship with the package."""

from __future__ import annotations

import io
import pathlib
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import corral
from corral import demo
from corral.cli.api.client import Client, segment
from corral.cli.api.transfers import FormFile, send_form
from corral.cli.failure import CommandRefused
from corral.cli.module.files import build_source
from corral.cli.module.views import MODULES, module_path, module_status
from corral.cli.template_files import template_path
from corral.cli.terminal.progress_line import ProgressLine
from corral.errors import counted

GROUP: Final = "lobby"
TEMPLATE: Final = "demo/lobby"
MOTD: Final = "%INSTANCE_NAME% on %NODE_ID%, a server without a game\n"
COUNT: Final = 2
PORTS: Final = (30_000, 30_100)
WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 1.0


def demo_document(ports: tuple[int, int] = PORTS) -> dict[str, Any]:
    """The group as the API takes it; its command is this interpreter and the template's server."""
    return {
        "name": GROUP,
        "runtime": "process",
        "templates": [TEMPLATE],
        "substitute": ["motd.txt"],
        "command": [
            sys.executable,
            "-I",
            "server.py",
            "--port",
            "%PORT%",
            "--motd-file",
            "motd.txt",
            "--bots",
        ],
        "probes": [{"kind": "minecraft", "interval_ms": 200}],
        "min": COUNT,
        "max": 5,
        "ports": {"primary": {"range": list(ports), "protocol": "tcp"}},
        "memory_mb": 64,
    }


def run_demo(client: Client, *, ports: tuple[int, int], pause: Callable[[float], None]) -> str:
    """Make the group unless there is one of this name, wait for its instances, and return a summary.
    A changed group is left as it is. `pause` waits, and raises when we are to end."""
    group = _find(client)
    if group is None:
        _upload(client)
        group = client.post("/api/v1/groups", demo_document(ports))
    desired = int(group.get("status", {}).get("wanted", COUNT))
    running = _await_running(client, desired, pause)
    addresses = ", ".join(f"{item['id']} on port {item['port']}" for item in running) or "none runs yet"
    return f"group '{GROUP}' with {len(running)} of {counted(desired, 'instance')}: {addresses}"


def demo_archive() -> bytes:
    """The template: the packaged server, and a text with variables in it."""
    server = pathlib.Path(demo.__file__).resolve().with_name("server.py").read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (("motd.txt", MOTD.encode()), ("server.py", server)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _upload(client: Client) -> None:
    archive = demo_archive()
    client.upload(
        template_path(TEMPLATE),
        [archive],
        size=len(archive),
        content_type="application/gzip",
        params={"note": "made by corral up --demo"},
    )


def _find(client: Client) -> Any:
    try:
        return client.get(f"/api/v1/groups/{segment(GROUP)}")
    except CommandRefused as refusal:
        if refusal.status == 404:
            return None
        raise


def _await_running(client: Client, desired: int, pause: Callable[[float], None]) -> list[Any]:
    """Running instances, once there are enough, or when time is over."""
    deadline = time.monotonic() + WAIT_SECONDS
    with ProgressLine() as progress:
        while True:
            items = client.pages("/api/v1/instances", {"group": GROUP})
            running = [item for item in items if item.get("state") == "RUNNING" and _answers(item)]
            if len(running) >= desired or time.monotonic() > deadline:
                return running
            progress.show(f"demo: {len(running)} of {counted(desired, 'instance')} running")
            pause(_POLL_SECONDS)


def _answers(item: Any) -> bool:
    """Whether it listens: right after a start the controller may still believe what was true before."""
    port = item.get("port")
    if not port:
        return True
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


MODULE: Final = "stats-aggregator"
SOURCE: Final = pathlib.Path(corral.__file__).resolve().parents[2] / "modules" / MODULE
"""Beside the source of Corral; a wheel does not bring it."""


def run_demo_module(client: Client) -> str:
    """Install it unless it is there, in whatever state; empty where its source is missing."""
    found = _find_module(client)
    if found is None and not SOURCE.is_dir():
        return ""
    return module_status(found or _install(client))


def _find_module(client: Client) -> Any:
    try:
        return client.get(module_path(MODULE))
    except CommandRefused as refusal:
        if refusal.status == 404:
            return None
        raise


def _install(client: Client) -> Any:
    with tempfile.TemporaryDirectory(prefix="corral-demo-") as directory:
        built = build_source(SOURCE, pathlib.Path(directory) / f"{MODULE}.cmod")
        part = FormFile(field="file", path=built.path)
        return send_form(client, MODULES, [part], what="installing the demo's module")
