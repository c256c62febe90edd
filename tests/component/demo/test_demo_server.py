"""The demo server as a client and an operator meet it: a socket, an input, an exit code."""

from __future__ import annotations

import json
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import server_list_client as client

import corral.demo

PROGRAM = pathlib.Path(corral.demo.__file__).with_name("server.py")


class Demo:
    """One running server; `expect` waits for a line of its console."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM), "--host", "127.0.0.1", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="demo-output")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def expect(self, pattern: str) -> str:
        """The next line that matches; those before it are passed over."""
        passed: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=20)
            except queue.Empty:
                raise AssertionError(f"no line like {pattern!r}; there were {passed}") from None
            if re.search(pattern, line):
                return line
            passed.append(line)

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def port(self) -> int:
        return int(re.findall(r"port (\d+)", self.expect("Done! Listening"))[0])

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def demo() -> Iterator[Callable[..., Demo]]:
    begun: list[Demo] = []

    def start(*arguments: str) -> Demo:
        begun.append(Demo(*arguments))
        return begun[-1]

    yield start
    for server in begun:
        server.close()


def test_the_server_list_shows_it(demo: Callable[..., Demo]) -> None:
    port = demo("--port", "0", "--max-players", "7", "--motd", "Hällo").port()
    found = client.status(port, protocol=765)
    assert found["version"] == {"name": "Corral demo", "protocol": 765}
    assert found["players"] == {"max": 7, "online": 0, "sample": []}
    assert found["description"] == {"text": "Hällo"}


def test_one_who_wants_to_play_is_told_that_it_is_a_demo(demo: Callable[..., Demo]) -> None:
    server = demo("--port", "0")
    port = server.port()
    with client.Connection(port) as connection:
        connection.send(client.handshake(port, protocol=765, next_state=2))
        connection.send(client.packet(0, client.text("Steve")))
        id, body = connection.receive()
        assert id == 0
        assert "demo" in json.loads(client.read_text(body))["text"]
        with pytest.raises(EOFError):
            connection.receive()
    server.expect("'Steve' wanted to play")


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 100, b"\x00", b"GET / HTTP/1.1\r\n\r\n", client.packet(9), b"\x05\x00"],
    ids=["endless number", "empty packet", "another protocol", "unknown packet", "unfinished packet"],
)
def test_garbage_is_hung_up_on_and_harms_nobody(demo: Callable[..., Demo], garbage: bytes) -> None:
    port = demo("--port", "0").port()
    with client.Connection(port) as connection:
        connection.send(garbage)
    assert client.status(port)["players"]["online"] == 0


def test_its_console_takes_commands(demo: Callable[..., Demo]) -> None:
    server = demo("--port", "0")
    server.port()
    server.type("list")
    server.expect(r"^\[\d\d:\d\d:\d\d\] There are 0 of a max of 20 players online$")
    server.type("say hello  there")
    server.expect(r"\[Server\] hello  there$")
    server.type("spam 1000")
    server.expect("^spam 1 of 1000$")
    server.expect("^spam 1000 of 1000$")
    server.type("spam lots")
    server.expect("spam needs a number")
    server.type("fly")
    server.expect("unknown command 'fly'; there are: help, list, say, spam, stop, crash")
    server.type("/help")
    server.expect("crash: end with a traceback")
    server.type("stop")
    server.expect("stopped with exit code 0")
    assert server.process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("command", "code", "said"), [("crash", 1, "RuntimeError: somebody"), ("crash 137", 137, "crashing")]
)
def test_it_crashes_when_asked_to(demo: Callable[..., Demo], command: str, code: int, said: str) -> None:
    server = demo("--port", "0")
    server.port()
    server.type(command)
    server.expect(said)
    assert server.process.wait(timeout=20) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(demo: Callable[..., Demo], number: signal.Signals) -> None:
    server = demo("--port", "0")
    server.port()
    server.process.send_signal(number)
    server.expect(f"stopping because of {number.name}")
    assert server.process.wait(timeout=20) == 0


def test_it_lives_on_when_its_input_ends(demo: Callable[..., Demo]) -> None:
    server = demo("--port", "0")
    port = server.port()
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert client.status(port)["players"]["max"] == 20


def test_a_taken_port_is_said_and_ends_it(demo: Callable[..., Demo]) -> None:
    port = demo("--port", "0").port()
    second = demo("--port", str(port))
    second.expect("FAILED TO BIND TO PORT! .*[Aa]ddress already in use")
    assert second.process.wait(timeout=20) == 1


def test_its_players_come_and_go_by_their_seed(demo: Callable[..., Demo]) -> None:
    servers = [demo("--port", "0", "--bots", "--seed", "7", "--pace", "0.02") for _ in range(2)]
    ports = [server.port() for server in servers]
    told = [[server.expect("the game").split("] ")[1] for _ in range(20)] for server in servers]
    assert told[0] == told[1]
    assert {line.split()[1] for line in told[0]} == {"joined", "left"}
    assert client.status(ports[0])["players"]["max"] == 20


def test_the_example_is_the_packaged_program() -> None:
    example = pathlib.Path(__file__).resolve().parents[3] / "examples" / "demo-server" / "server.py"
    assert example.resolve() == PROGRAM.resolve()
