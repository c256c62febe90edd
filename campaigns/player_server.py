"""A workload with players: as many as the file with its instance's id and its process id says. It reports them, and
writes down what it knew when it was asked to stop. Run by `python -I -S`, without anything of ours.

It holds its instance's id and its ports by locks that a second holder would trip over. SIGTERM and SIGUSR1 end it with
0, SIGUSR2 with 3. Of the kind `mute` it reports nothing, of the kind `bad` it ends with 1 at once, and of the kind `world`
it keeps a list of its runs in its directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from types import FrameType

TWO_HOLDERS = 99
_LOOK_SECONDS = 0.1
_REPEAT_SECONDS = 20.0


class Server:
    """`told`: what the controller accepted last, and since when that is above 0."""

    def __init__(self, side: str, addresses: list[str], *, before: list[str]) -> None:
        """`before`: the runs that were in this directory before."""
        self._id = os.environ["CORRAL_INSTANCE_ID"]
        self._file = f"{side}/players/{self._id}.{os.getpid()}"
        self._log = os.open(f"{side}/logs/{self._id}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._addresses = addresses
        self._players = 0
        self._told = -1
        self._told_at = 0.0
        self._busy_since = 0.0
        self.note("begin", before=before)

    def note(self, what: str, **more: object) -> None:
        """One line, in one write: a kill leaves whole lines."""
        line = {
            "what": what,
            "at": time.time(),
            "instance": self._id,
            "run": os.environ["CORRAL_RUN"],
            "node": os.environ["CORRAL_NODE_ID"],
            "players": self._players,
            "told": self._told,
            "busy_since": self._busy_since,
            **more,
        }
        os.write(self._log, json.dumps(line).encode() + b"\n")

    def look(self) -> None:
        try:
            with open(self._file) as file:  # noqa: PTH123 - imports are paid for by each run
                self._players = int(file.read() or 0)
        except FileNotFoundError:
            self._players = 0
        due = time.monotonic() - self._told_at > _REPEAT_SECONDS
        if (self._players != self._told or due) and self._report(self._players):
            self._told_at = time.monotonic()
            if self._told != self._players:
                self._told = self._players
                self._busy_since = (self._busy_since or time.time()) if self._told else 0.0
                self.note("told")

    def _report(self, players: int) -> bool:
        for address in self._addresses:
            try:
                if self._post(address, players) == b"204":
                    return True
            except OSError:
                continue
        return False

    def _post(self, address: str, players: int) -> bytes:
        body = json.dumps({"count": players}).encode()
        head = (
            "POST /api/v1/workload/players HTTP/1.1\r\n"
            f"Host: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {os.environ['CORRAL_INSTANCE_TOKEN']}\r\nConnection: close\r\n\r\n"
        )
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=3) as connection:
            connection.sendall(head.encode() + body)
            answer = connection.recv(4096).split(b" ", 2)
        return answer[1] if len(answer) > 1 else b""

    def ended(self, number: int, _: FrameType | None) -> None:
        self.note(signal.Signals(number).name)
        os._exit(3 if number == signal.SIGUSR2 else 0)


def main(side: str, kind: str, address: str, *ports: str) -> None:
    _hold(side, os.environ["CORRAL_INSTANCE_ID"])
    for port in ports:
        _hold(side, f"{address}:{port}")
    if kind == "bad":
        os.write(1, b"the level cannot be read\n")
        os._exit(1)
    before = _visit() if kind == "world" else []
    server = Server(side, os.environ["CAMPAIGN_CONTROLLERS"].split(","), before=before)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, server.ended)
    os.write(1, b"holds\n")
    while True:
        if kind != "mute":
            server.look()
        time.sleep(_LOOK_SECONDS)


def _visit() -> list[str]:
    """The runs that were in this directory; this one is added."""
    with open("visits", "a+") as file:  # noqa: PTH123 - imports are paid for by each run
        file.seek(0)
        before = file.read().split()
        file.write(f"{os.environ['CORRAL_RUN']}\n")
    return before


def _hold(side: str, name: str) -> None:
    lock = os.open(f"{side}/{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(f"{side}/violations", "a") as file:  # noqa: PTH123 - imports are paid for by each run
            file.write(
                f"{os.environ['CORRAL_RUN']} on {os.environ['CORRAL_NODE_ID']}: {name} is held twice\n"
            )
        os._exit(TWO_HOLDERS)
    os.set_inheritable(lock, True)


if __name__ == "__main__":
    main(*sys.argv[1:])
