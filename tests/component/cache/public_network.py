"""Downloads in a network of their own, where a public address is on this machine. Run as root by `unshare --net --mount`,
with the real resolver, real names and real sockets; prints what each download led to, as JSON.

Every forbidden address is on this machine as well, and its web server would answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import logging
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import urllib.parse
from typing import Any, Final

import structlog
import uvloop

from corral.daemon.cache.downloads import Downloads
from corral.errors import CorralError
from corral.system.clock import SystemClock
from corral.system.daemon_config import DownloadsSection
from corral.system.entropy import SystemEntropy

PUBLIC: Final = "1.2.3.4"
CONTENT: Final = b"jar"
DIGEST: Final = hashlib.sha256(CONTENT).hexdigest()
ADDRESSES: Final = (
    PUBLIC,
    "10.9.9.9",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.5",
    "240.0.0.1",
    "fc00::1",
    "fe80::1",
    "fec0::1",
    "100::1",
    "64:ff9b::a09:909",
    "64:ff9b:1::1",
    "2001:db8::1",
    "2001:0:102:304::1",
    "2002:a09:909::1",
)
HANGING: Final = 16


def make_network() -> None:
    """Addresses, names and the resolver's settings, in these namespaces alone."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        width = "128 nodad" if ":" in address else "32"
        subprocess.run(["ip", "addr", "add", "dev", "lo", *f"{address}/{width}".split()], check=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    directory = pathlib.Path(tempfile.mkdtemp())
    for name, text in (
        ("hosts", "127.0.0.1 localhost\n"),
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ):
        (directory / name).write_text(text)
        if pathlib.Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", directory / name, pathlib.Path("/etc", name)], check=True)


class Names(asyncio.DatagramProtocol):
    """A name server. `mixed` has a forbidden address as well, `rebound…` is public when it is first asked for and
    never again, `hang…` never gets an answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, query: bytes, peer: Any) -> None:
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, question = labels[0], query[12 : at + 5]
        found: list[str] = []
        if question[-4:] == b"\x00\x01\x00\x01":
            self.asked.append(name)
            found = self._addresses(name)
        if not name.startswith("hang"):
            head = query[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, len(found), 0, 0)
            records = (
                b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + ipaddress.ip_address(each).packed
                for each in found
            )
            self._transport.sendto(head + question + b"".join(records), peer)

    def _addresses(self, name: str) -> list[str]:
        if name.startswith("rebound") and self.asked.count(name) > 1:
            return ["127.0.0.1"]
        return {"mixed": ["127.0.0.1", PUBLIC, "10.9.9.9"], "private": ["10.9.9.9"]}.get(name, [PUBLIC])


class Web:
    """A web server on every address; `/to?URL` redirects."""

    def __init__(self) -> None:
        self.met: list[str] = []
        """Addresses at which a connection arrived."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met.append(writer.get_extra_info("sockname")[0])
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        if path.startswith("/to?"):
            location = urllib.parse.unquote(path.removeprefix("/to?"))
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + CONTENT)
        await writer.drain()
        writer.close()


async def main(urls: list[str]) -> None:
    """The outcome of each URL with the addresses at which it connected; then that of a name beside others that hang."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    make_network()
    names, web = Names(), Web()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, local_addr=("127.0.0.1", 53))
    await asyncio.start_server(web, "0.0.0.0", 80)
    await asyncio.start_server(web, "::", 80)
    settings = DownloadsSection(attempts=1, timeout_seconds=10)
    downloads = Downloads(settings=settings, clock=SystemClock(), entropy=SystemEntropy())
    target = pathlib.Path(tempfile.mkdtemp())

    async def outcome(url: str) -> str:
        try:
            await downloads.fetch(url, target / "got", sha256=DIGEST)
        except CorralError as error:
            return f"{error.code.name}: {error}"
        (target / "got").unlink()
        return "fetched"

    found: dict[str, tuple[str, list[str]]] = {}
    for url in urls:
        web.met.clear()
        found[url] = await outcome(url), list(web.met)
    hanging = [asyncio.create_task(outcome(f"http://hang{number}.example/x")) for number in range(HANGING)]
    while not any(name.startswith("hang") for name in names.asked):
        await asyncio.sleep(0.01)
    beside = await outcome("http://good.example/x")
    print(json.dumps({"found": found, "beside": beside, "asked": names.asked}), flush=True)
    os._exit(0 if hanging else 1)  # threads of the lookups wait on


if __name__ == "__main__":
    uvloop.run(main(json.load(sys.stdin)))
