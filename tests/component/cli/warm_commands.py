"""Commands whose interpreter and libraries were loaded before: most of what a command takes to start.

One process imports what is not ours, and forks one for each command. That one imports and runs `corral.cli` itself, as
`python -m corral.cli` does, and ends as any interpreter does. A test that is about the start, a terminal or a signal
starts `stand_in_controller.PROGRAM` instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pathlib
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

MODULE = "corral.cli"
LIBRARIES = (
    *("asyncio", "difflib", "encodings.idna", "hashlib", "http.client", "json", "logging", "shlex", "shutil"),
    *("tarfile", "tempfile", "textwrap", "uuid", "zipfile"),
    *("click", "cryptography.x509", "jsonschema_rs", "msgspec", "re2", "structlog", "yaml"),
)
"""What most commands import, or some with much effort."""
MOST_BYTES = 100_000
"""Of a request, which is one packet; a larger one begins cold."""
DECIDED_AT_START = ("PYTHON", "LC_", "LANG")
"""Variables that an interpreter has read before it runs a command: other values begin cold, too."""


class WarmCommands:
    """The process that forks: made before the tests that use it, closed after them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._decided = _decided(env)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def close(self) -> None:
        self._requests.close()
        assert self._process.communicate(timeout=20) == (b"", b"")
        assert self._process.returncode == 0

    def run(
        self, arguments: Sequence[str], *, env: Mapping[str, str], input: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does it, with the output captured; without `input` there is nothing to read."""
        command = [sys.executable, "-m", MODULE, *arguments]
        request = json.dumps([list(arguments), dict(env), str(pathlib.Path.cwd())]).encode()
        if _decided(env) != self._decided or len(request) > MOST_BYTES:
            stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
            return subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=timeout, check=False, **stdin
            )
        with _Forked(self._requests, request, reads=input is not None) as forked:
            output = forked.communicate((input or "").encode(), timeout=timeout)
            return subprocess.CompletedProcess(command, forked.wait(timeout), *map(_text, output))


class _Forked:
    """A command of its own: its pipes, and a socket that tells its pid and, in the end, its code."""

    def __init__(self, requests: socket.socket, request: bytes, *, reads: bool) -> None:
        stdin, self._stdin = _pipe() if reads else (io.FileIO(os.devnull), None)
        self._stdout, stdout = _pipe()
        self._stderr, stderr = _pipe()
        self._answers, theirs = socket.socketpair()
        given = (stdin, stdout, stderr, theirs)
        socket.send_fds(requests, [request], [each.fileno() for each in given])
        for each in given:
            each.close()
        self._pid = self._told()

    def __enter__(self) -> _Forked:
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        for each in (self._stdin, self._stdout, self._stderr, self._answers):
            if each is not None:
                each.close()

    def communicate(self, given: bytes, *, timeout: float) -> tuple[bytes, bytes]:
        read: dict[object, list[bytes]] = {self._stdout: [], self._stderr: []}
        ends = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for each in read:
                selector.register(each, selectors.EVENT_READ)
            if self._stdin is not None:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(ends - time.monotonic())
                if not ready:
                    raise TimeoutError(f"not within {timeout:g} s; its output so far: {read}")
                for key, _ in ready:
                    if key.fileobj is self._stdin:
                        given = given[_written(self._stdin, given) :]
                        if given:
                            continue
                    elif some := os.read(key.fd, 1 << 16):
                        read[key.fileobj].append(some)
                        continue
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        return b"".join(read[self._stdout]), b"".join(read[self._stderr])

    def wait(self, timeout: float) -> int:
        self._answers.settimeout(timeout)
        return self._told()

    def _told(self) -> int:
        number = self._answers.recv(4)
        assert number, "the process that forks has ended"
        return int.from_bytes(number, signed=True)


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    reading, writing = os.pipe()
    return io.FileIO(reading, "r"), io.FileIO(writing, "w")


def _written(pipe: io.FileIO, given: bytes) -> int:
    """How much of it was taken; all, if nobody reads any more."""
    try:
        return os.write(pipe.fileno(), given[: select.PIPE_BUF])
    except BrokenPipeError:
        return len(given)


def _text(output: bytes) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


def _decided(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(DECIDED_AT_START)}


def _serve(requests: socket.socket) -> bool:
    """Fork for each request, until nobody is there to ask. True in a process that has a command to run."""
    ending: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != requests.fileno():
                pid, answers = ending.pop(ready)
                _, status = os.waitpid(pid, 0)
                poll.unregister(ready)
                os.close(ready)
                with answers:
                    answers.send(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
                continue
            request, given, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
            if not request:
                return False
            pid = os.fork()
            if not pid:
                requests.close()
                for other, (_, answers) in ending.items():
                    os.close(other)
                    answers.close()
                _become(*json.loads(request), given)
                return True
            for descriptor in given[:3]:
                os.close(descriptor)
            answers = socket.socket(fileno=given[3])
            answers.send(pid.to_bytes(4, signed=True))
            pidfd = os.pidfd_open(pid)
            ending[pidfd] = pid, answers
            poll.register(pidfd, select.POLLIN)


def _become(arguments: list[str], env: dict[str, str], directory: str, given: list[int]) -> None:
    """What an interpreter has that was started so."""
    for number, descriptor in enumerate(given[:3]):
        os.dup2(descriptor, number)
    for descriptor in given:
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [MODULE, *arguments]
    sys.path[0] = directory


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()  # else each command would copy all of it, to look for garbage in it
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        forked = _serve(requests)
    if forked:
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
