"""Probes of ports: that somebody accepts a connection, and that HTTP is answered there."""

from __future__ import annotations

import urllib.parse
from typing import Final

from corral.daemon.probes.attempts import NotYet, connected
from corral.domain.probes import ProbeSpec

_SAFE: Final = "/?&=%:@!$'()*+,;~-._[]"
_MAX_HEADERS: Final = 100
_MAX_INFORMATIONAL: Final = 5


async def try_tcp(host: str, port: int) -> None:
    async with connected(host, port):
        pass


async def try_http(spec: ProbeSpec, host: str, port: int) -> None:
    """One GET. Only the status is read: no redirect is followed and no body taken."""
    path = urllib.parse.quote(spec.path if spec.path.startswith("/") else f"/{spec.path}", safe=_SAFE)
    name = f"[{host}]" if ":" in host else host
    request = f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nUser-Agent: corral\r\nConnection: close\r\n\r\n"
    async with connected(host, port) as (reader, writer):
        writer.write(request.encode())
        try:
            for _ in range(_MAX_INFORMATIONAL):
                status = _status(await reader.readline())
                if status >= 200:
                    break
                for _ in range(_MAX_HEADERS):
                    if not (await reader.readline()).strip():
                        break
        except ValueError:
            raise NotYet(f"port {port} answers something that is not HTTP: a line without an end") from None
    if not (status in spec.statuses if spec.statuses else 200 <= status < 400):
        wanted = ", ".join(map(str, spec.statuses)) or "200 to 399"
        raise NotYet(f"GET {path} answered {status}; wanted: {wanted}")


def _status(line: bytes) -> int:
    if not line:
        raise NotYet("the connection was closed without an answer")
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != 3:
        raise NotYet("the answer is not HTTP:", said=line.strip())
    return int(code)
