"""The API over the private socket of the controller that runs this command."""

from __future__ import annotations

import http.client
import socket

from corral.cli.api.client import Client


class OwnClient(Client):
    """Talks to the controller that started this process. Its requests carry the id of the one that asked for the command:
    so the audit shows what came of it."""

    def __init__(self, *, socket_path: str, token: str, request: str) -> None:
        super().__init__(url="http://localhost", token=token)
        self._socket_path = socket_path
        self._request = request

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        return _SocketConnection(self._socket_path, timeout)

    def _headers(self) -> dict[str, str]:
        return {**super()._headers(), "X-Request-Id": self._request}


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire.settimeout(self.timeout)
        try:
            wire.connect(self._path)
        except BaseException:
            wire.close()
            raise
        self.sock = wire
