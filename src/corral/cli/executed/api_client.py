"""The API over the private socket of the controller that runs this command."""

from __future__ import annotations

import socket

from corral.cli.api.client import Client


class OwnClient(Client):
    """Talks to the controller that started this process. Its requests carry the id of the one that asked for the command:
    so the audit shows what came of it."""

    def __init__(self, *, socket_path: str, token: str, request: str) -> None:
        super().__init__(url="http://localhost", token=token)
        self._socket_path = socket_path
        self._request = request

    def _connect(self, seconds: float) -> socket.socket:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire.settimeout(seconds)
        try:
            wire.connect(self._socket_path)
        except BaseException:
            wire.close()
            raise
        return wire

    def _headers(self) -> dict[str, str]:
        return {**super()._headers(), "X-Request-Id": self._request}
