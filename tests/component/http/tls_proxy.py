"""Reverse proxies with TLS, as operators have one before a controller: a small one of ours, and nginx and Caddy with the
configuration of the guide, on a port of the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Final, Protocol

from certificate_files import PairFiles

from corral.pki.keys import new_key
from corral.system.aio.tasks import Tasks
from corral.testing.ports import free_range
from corral.testing.waiting import eventually

GUIDE: Final = pathlib.Path(__file__).parents[3] / "docs" / "guides" / "tls.md"


class Proxy(Protocol):
    """Serves `url`, `https://localhost:PORT`, with this certificate."""

    url: str
    certificate: pathlib.Path

    async def pass_on(self, target: str) -> None:
        """Send requests to this HOST:PORT from now on."""


class TlsProxy:
    """Adds the address of its peer to `X-Forwarded-For` and sets `X-Forwarded-Proto`. One request for a connection."""

    def __init__(self, files: PairFiles, port: int) -> None:
        self.certificate = files.certificate
        self.url = f"https://localhost:{port}"
        self._target = ""

    async def pass_on(self, target: str) -> None:
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, asyncio.IncompleteReadError):
            stack.callback(writer.close)
            head = await reader.readuntil(b"\r\n\r\n")
            host, _, port = self._target.partition(":")
            upstream, sent = await asyncio.open_connection(host, int(port))
            stack.callback(sent.transport.abort)
            peer: str = writer.get_extra_info("peername")[0]
            sent.write(forwarded(head, peer))
            async with Tasks() as tasks:
                tasks.spawn(_copy(reader, sent), name="testing/proxy-up")
                await _copy(upstream, writer)


def forwarded(head: bytes, peer: str) -> bytes:
    """The head as it is passed on."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    upgrade = any(name == "upgrade" for name, _ in fields)
    chain = [value for name, value in fields if name == "x-forwarded-for"]
    dropped = {"x-forwarded-for", "x-forwarded-proto", *(() if upgrade else ("connection",))}
    kept = [f"{name}: {value}" for name, value in fields if name not in dropped]
    own = [f"x-forwarded-for: {', '.join([*chain, peer])}", "x-forwarded-proto: https"]
    closing = [] if upgrade else ["connection: close"]
    return ("\r\n".join([first, *kept, *own, *closing]) + "\r\n\r\n").encode("latin-1")


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await source.read(65536):
            sink.write(part)
            await sink.drain()


def _certified(directory: pathlib.Path) -> PairFiles:
    directory.mkdir(exist_ok=True)
    files = PairFiles(directory)
    files.write(new_key(), 1)
    return files


@contextlib.asynccontextmanager
async def tls_proxy(directory: pathlib.Path) -> AsyncIterator[TlsProxy]:
    files = _certified(directory)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    made: list[TlsProxy] = []
    async with Tasks() as tasks:

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.spawn(made[0].serve(reader, writer), name="testing/proxy")

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        made.append(TlsProxy(files, server.sockets[0].getsockname()[1]))
        try:
            yield made[0]
        finally:
            server.close()


def of_guide(path: str) -> str:
    """The file that the guide writes to this path."""
    found = re.search(rf"^cat > {re.escape(path)} <<'EOF'\n(.*?)^EOF$", GUIDE.read_text(), flags=re.M | re.S)
    assert found is not None
    return found[1]


def installed(program: str) -> str:
    """Its path: that of the machine, or the one that `tools/install_test_programs.sh` unpacked."""
    unpacked = pathlib.Path(sys.prefix) / "programs/usr"
    found = shutil.which(program, path=f"{os.environ['PATH']}:{unpacked}/sbin:{unpacked}/bin")
    assert found is not None, f"{program} is missing: run make setup"
    return found


class InstalledProxy:
    """A program, started once it is known where requests go."""

    def __init__(self, directory: pathlib.Path, stack: contextlib.AsyncExitStack) -> None:
        self.directory = directory
        self.files = _certified(directory)
        self.certificate = self.files.certificate
        self.port, _ = free_range(1)
        self.url = f"https://localhost:{self.port}"
        self._stack = stack

    def configure(self, target: str) -> list[str]:
        """Write the configuration; the command."""
        raise NotImplementedError

    async def pass_on(self, target: str) -> None:
        command = self.configure(target)
        home = {"PATH": os.environ["PATH"], "HOME": str(self.directory)}
        log = self._stack.enter_context((self.directory / "log").open("wb"))
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=home)
        self._stack.push_async_callback(process.wait)
        self._stack.callback(process.terminate)
        await eventually(self._listens, state=(self.directory / "log").read_text)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


class Nginx(InstalledProxy):
    def configure(self, target: str) -> list[str]:
        site = of_guide("/etc/nginx/conf.d/corral.conf")
        for theirs, ours in (
            ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
            ("http://127.0.0.1:8480", f"http://{target}"),
            ("/etc/corral/http.pem", str(self.files.certificate)),
            ("/etc/corral/http.key", str(self.files.key)),
        ):
            assert theirs in site
            site = site.replace(theirs, ours)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {self.directory}/{kind};" for kind in kinds)
        main = f"""daemon off; worker_processes 1; pid {self.directory}/pid;
events {{}}
http {{ access_log off; {paths} {site} }}
"""
        (self.directory / "nginx.conf").write_text(main)
        return [
            installed("nginx"),
            "-e",
            "stderr",
            "-p",
            str(self.directory),
            "-c",
            str(self.directory / "nginx.conf"),
        ]


class Caddy(InstalledProxy):
    def configure(self, target: str) -> list[str]:
        site = of_guide("/etc/caddy/Caddyfile")
        assert "panel.example.org {" in site
        own = f"tls {self.files.certificate} {self.files.key}"
        site = site.replace("panel.example.org {", f"{self.url} {{\n    {own}")
        site = site.replace("127.0.0.1:8480", target)
        options = "{\n    admin off\n    auto_https disable_redirects\n    skip_install_trust\n}\n"
        path = self.directory / "Caddyfile"
        path.write_text(options + site)
        return [installed("caddy"), "run", "--config", str(path), "--adapter", "caddyfile"]


@contextlib.asynccontextmanager
async def nginx(directory: pathlib.Path) -> AsyncIterator[InstalledProxy]:
    async with contextlib.AsyncExitStack() as stack:
        yield Nginx(directory, stack)


@contextlib.asynccontextmanager
async def caddy(directory: pathlib.Path) -> AsyncIterator[InstalledProxy]:
    async with contextlib.AsyncExitStack() as stack:
        yield Caddy(directory, stack)
