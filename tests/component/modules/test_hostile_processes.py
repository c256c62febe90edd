"""Modules that break their own process, or what it may use: the controller goes on, and the reason is told."""

from __future__ import annotations

import pathlib
from typing import Any, Final

import pytest
from hostile_rig import code_of, pen
from hostile_zoo import beast_archive

from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

LONG_MS: Final = 20_000
"""For a hook that is to end by itself."""
ONCE: Final = {"modules__deaths_before_failed": 0}
SPIN_IN_C: Final = "re.match('(a+)+$', 'a' * 60 + 'b')"
NATIVE: Final = """
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
while True: libc.memset(libc.malloc(1 << 20), 1, 1 << 20)
"""
BOMB: Final = """
import mmap
left = mmap.mmap(-1, 4096)
left[0:2] = (300).to_bytes(2, "little")
while (n := int.from_bytes(left[0:2], "little")) > 0:
    left[0:2] = (n - 1).to_bytes(2, "little")
    if os.fork() == 0: os.setsid()
time.sleep(3600)
"""
"""It ends by itself at 300, in case nobody else does."""
SAME_CALL: Final = "line().sendall(encode_frame(Call(10**6, 'x', encode_body({}), 60000)) * 2)"
HUGE: Final = """
sock, body = line(), {body}
head = b"\\x95\\xa4call" if {called} else b"\\x93\\xa6notice"
for number in range(1, 100):
    id = b"\\xce" + (10**6 + number).to_bytes(4, "big") if {called} else b""
    name = {method!r}.encode()
    frame = head + id + bytes([0xa0 | len(name)]) + name + body + (b"\\x00" if {called} else b"")
    sock.sendall(len(frame).to_bytes(4, "little") + frame)
time.sleep(3600)
"""
"""One frame after the other that is over a limit, past the SDK."""
LISTS: Final = "b'\\xdd' + (4_000_000).to_bytes(4, 'big') + b'\\x90' * 4_000_000"
DEEP: Final = "b'\\x82\\xa4type\\xa1X\\xa4data\\x81\\xa1a' + b'\\x91' * 974 + b'\\x90'"
SAMPLES: Final = (
    "b'\\x81\\xa7samples\\xdd' + (100_000).to_bytes(4, 'big')"
    " + b'\\x83\\xa4name\\xa1a\\xa4kind\\xa5gauge\\xa5value\\x01' * 100_000"
)
NOISE: Final = "while True: line().sendall(os.urandom(65536))"


def specimen(code: str, reason: str, id: str, *, trap: str = "", **manifest: Any) -> Any:
    marks = [pytest.mark.trap(trap)] if trap else []
    return pytest.param(code, reason, manifest, id=id, marks=marks)


def limits(**given: int) -> dict[str, Any]:
    return {"limits": given}


DEADLY = [
    specimen("os._exit(3)", "process_exited:3", "exits", trap="T57"),
    specimen("os._exit(0)", "process_exited:0", "exits as if all were well"),
    specimen("ctypes.string_at(0)", "process_died:SIGSEGV", "segfaults", trap="T57"),
    specimen("os.abort()", "process_died:SIGABRT", "aborts"),
    specimen("os.kill(os.getpid(), 9)", "process_died:SIGKILL", "kills itself"),
    specimen("bytearray(2 << 30)", "memory_limit", "two gigabytes at once", trap="T57"),
    specimen(
        "held = []\nwhile True: held.append(bytes(range(256)) * 4096)",
        "memory_limit",
        "two gigabytes bit by bit",
        trap="T57",
        **limits(memoryMb=96),
    ),
    specimen(NATIVE, "memory_limit", "memory in native code", **limits(memoryMb=128)),
    specimen("os.closerange(3, 1024)\ntime.sleep(3600)", "cut_off:socket_closed", "closes its socket"),
    specimen(
        f"line().shutdown(socket.SHUT_RDWR)\n{SPIN_IN_C}",
        "cut_off:socket_closed",
        "shuts its socket down and spins",
    ),
    specimen(NOISE, "cut_off:bad_frame", "noise on its socket"),
    specimen(f"{SAME_CALL}\ntime.sleep(3600)", "cut_off:flood", "calls that cannot be told apart"),
    *(
        specimen(HUGE.format(body=body, method=method, called=called), "cut_off:flood", id, trap="T82")
        for body, method, called, id in (
            (LISTS, "events.publish", True, "events of four megabytes"),
            (LISTS, "documents.transaction", True, "transactions of four million parts"),
            (LISTS, "nobody.knows", True, "calls that nobody offers, of four megabytes"),
            (DEEP, "events.publish", True, "events nested 974 deep"),
            (SAMPLES, "metrics.record", False, "a hundred thousand samples at once"),
            (LISTS, "log", False, "log lines of four megabytes"),
        )
    ),
    specimen(BOMB, "process_limit", "fork bomb", trap="T57", **limits(processes=40)),
    specimen(
        "for _ in range(100): threading.Thread(target=time.sleep, args=(3600,)).start()\ntime.sleep(3600)",
        "process_limit",
        "threads without end",
        **limits(memoryMb=1024, processes=40),
    ),
]

WHILE_SERVING: Final = {"exits", "segfaults", "memory in native code", "closes its socket", "fork bomb"}


@pytest.mark.parametrize(("code", "reason", "manifest"), DEADLY)
async def test_a_process_that_ends_in_a_hook_fails_its_module(
    cluster: LocalCluster, scratch: pathlib.Path, code: str, reason: str, manifest: dict[str, Any]
) -> None:
    async with pen(cluster, scratch) as made:
        archive = beast_archive(made.scratch, "on_start", code, id="beast", hook_ms=LONG_MS, **manifest)
        told = await made.install(archive)
        assert (told["phase"], told["reason"]) == ("FAILED", reason), told["failure"]
        assert told["failure"]["reason"] == reason
        assert await made.held("beast") == []
        assert made.strays() == []
        assert await made.act("beast", "recover") == ("FAILED", reason)
        await made.uninstall("beast")


@pytest.mark.parametrize(
    ("code", "reason", "manifest"), [each for each in DEADLY if each.id in WHILE_SERVING]
)
async def test_a_process_that_ends_while_it_serves_takes_what_it_held_along(
    cluster: LocalCluster, scratch: pathlib.Path, code: str, reason: str, manifest: dict[str, Any]
) -> None:
    async with pen(cluster, scratch, **ONCE) as made:
        archive = beast_archive(made.scratch, "route", code, id="beast", route_ms=LONG_MS, **manifest)
        assert (await made.install(archive))["phase"] == "ACTIVE"
        answer = await made.ask("GET", "/beast/evil")
        assert (answer.status_code, code_of(answer)) == (503, "MODULE_NOT_ACTIVE")
        await made.stands("beast", "FAILED", reason)
        assert await made.held("beast") == []
        await made.uninstall("beast")


async def test_memory_that_a_route_is_refused_costs_that_answer_alone(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    async with pen(cluster, scratch, **ONCE) as made:
        archive = beast_archive(made.scratch, "route", "bytearray(2 << 30)", id="beast", route_ms=LONG_MS)
        assert (await made.install(archive))["phase"] == "ACTIVE"
        assert code_of(await made.ask("GET", "/beast/evil")) == "MODULE_FAILED"
        assert (await made.ask("GET", "/beast/ping")).json() == {"pong": True}
        assert await made.standing("beast") == ("ACTIVE", "")
        await made.uninstall("beast")


async def test_a_death_is_mended_with_its_reason_in_the_story(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    async with pen(cluster, scratch, modules__deaths_before_failed=1) as made:
        archive = beast_archive(made.scratch, "route", "os._exit(3)", id="beast", route_ms=LONG_MS)
        first = (await made.install(archive))["live"]["pid"]
        assert code_of(await made.ask("GET", "/beast/evil")) == "MODULE_NOT_ACTIVE"

        async def again() -> Any:
            found = await made.info("beast")
            return found["phase"] == "ACTIVE" and found["live"] and found["live"]["pid"] != first

        await eventually(again)
        steps = [(step["from"], step["to"], step["reason"]) for step in (await made.info("beast"))["history"]]
        assert ("ACTIVE", "STOPPING", "process_exited:3") in steps
        assert code_of(await made.ask("GET", "/beast/evil")) == "MODULE_NOT_ACTIVE"
        await made.stands("beast", "FAILED", "process_exited:3")
        await made.uninstall("beast")
