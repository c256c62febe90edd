"""What is sent over a connection: method, target, headers and body. Imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping

from corral.client.addresses import Address
from corral.client.bodies import Body


class Outgoing:
    """A request on its way. `reads`: it changes nothing."""

    __slots__ = ("body", "headers", "method", "reads", "target")

    def __init__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: Body | None = None,
        reads: bool,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.reads = reads

    def head(self, address: Address, token: str | None) -> bytes:
        """Request line and headers."""
        headers = {"Host": address.host_header, **self.headers}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self.body is not None and self.body.size is None:
            headers["Transfer-Encoding"] = "chunked"
        elif self.body is not None or self.method != "GET":
            headers["Content-Length"] = str(self.body.size if self.body is not None else 0)
        lines = [f"{self.method} {address.prefix}{self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii")
