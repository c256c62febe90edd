"""The API of a controller over one kept connection; every answer is a good one."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from typing import Final

DEADLINE: Final = 120.0


class Site:
    """`open_site` makes one. Blocks: whoever shares a loop with daemons asks from a thread."""

    def __init__(self, connection: http.client.HTTPConnection, token: str) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"}

    def request(self, method: str, path: str, body: bytes = b"", *, kind: str = "application/zip") -> bytes:
        headers = {**self._headers, **({"Content-Type": kind} if body else {})}
        self._connection.request(method, path, body or None, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {content.decode()[:2000]}")
        return content


@contextlib.contextmanager
def open_site(address: str, token: str) -> Iterator[Site]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=DEADLINE)) as connection:
        yield Site(connection, token)
