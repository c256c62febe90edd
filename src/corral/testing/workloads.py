"""Workloads for tests: small programs that behave, misbehave and die as real ones do; and the check of
numbered output, that nothing is lost, doubled, reordered or damaged.

Each function gives the argument list of a program. Most are `/bin/sh`, which starts in a millisecond and
takes less than a megabyte, so that a test may run a hundred; the rest are `python -I -S`. They need no files,
so that they run as any user from any directory. A program that prints anything prints one known line first
(`up …`), so that a test can wait for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

import msgspec

SHELL: Final = "/bin/sh"
Argv = tuple[str, ...]

_FACTOR: Final = 7919
_MODULUS: Final = 65_521
_BURSTS_PER_SECOND: Final = 10


def shell(script: str, *arguments: str) -> Argv:
    """A shell program; it finds its arguments in `$1`, `$2`, …"""
    return (SHELL, "-c", script, "workload", *arguments)


def python(program: str, *arguments: str) -> Argv:
    """A Python program with nothing but the standard library; arguments in `sys.argv[1:]`."""
    return (sys.executable, "-I", "-S", "-c", program, *arguments)


def checksum(number: int) -> int:
    """The checksum after the number of a numbered line; small enough for a shell to compute."""
    return number * _FACTOR % _MODULUS


def chatty(
    *, lines: int = 0, per_second: int = 0, tag: str = "line", padding: int = 0, then: str = "exec sleep 3600"
) -> Argv:
    """Writes `TAG NUMBER CHECKSUM [PADDING]`, numbered from 1: flat out, or `per_second` in ten bursts a
    second. After `lines` of them (0: never) it continues with the script `then`."""
    burst = max(1, per_second // _BURSTS_PER_SECOND)
    pause = f"; [ $((n % {burst})) -eq 0 ] && sleep {burst / per_second:.4f}" if per_second else ""
    more = f'[ "$n" -lt {lines} ]' if lines else ":"
    tail = " " + "x" * padding if padding else ""
    return shell(
        f"n=0; while {more}; do n=$((n + 1)); "
        f'echo "{tag} $n $((n * {_FACTOR} % {_MODULUS})){tail}"{pause}; done; {then}'
    )


def silent() -> Argv:
    """Runs, prints nothing, reads nothing; ends by the first signal."""
    return shell("exec sleep 86400")


def not_reading() -> Argv:
    """Prints `up` and never reads its input."""
    return shell("echo up; exec sleep 86400")


def reading_commands(*, code: int = 0) -> Argv:
    """Prints `up`, answers each line with `got LINE`; `stop` ends it with `code`, `die` kills it, and the end
    of its input ends it with 3."""
    return shell(
        'echo up; while IFS= read -r line; do case "$line" in stop) echo bye; exit "$1" ;; '
        'die) kill -9 $$ ;; *) printf "got %s\\n" "$line" ;; esac; done; exit 3',
        str(code),
    )


def slow_stopper(seconds: float) -> Argv:
    """Stops slowly: after `stop` or SIGTERM it prints `stopping`, and ends with 0 that much later."""
    return shell(
        'pause=$1; later() { echo stopping; sleep "$pause"; exit 0; }; trap later TERM; echo up; '
        'while IFS= read -r line; do [ "$line" = stop ] && later; done; exit 3',
        f"{seconds:g}",
    )


def ignoring_signals() -> Argv:
    """Prints `up`, reads nothing and ignores every signal that can be ignored, its children too."""
    return shell("trap '' TERM INT HUP QUIT USR1 USR2 PIPE; echo up; while :; do sleep 3600; done")


def closing_descriptors() -> Argv:
    """Prints `up`, then closes input, output and errors and lives on."""
    return shell("echo up; exec sleep 86400 <&- >&- 2>&-")


def forking(children: int = 3) -> Argv:
    """Prints `child PID` for each child and `up`; all of them stay."""
    return shell(
        'n=0; while [ "$n" -lt "$1" ]; do n=$((n + 1)); sleep 86400 & echo "child $!"; done; echo up; wait',
        str(children),
    )


def fork_storm(*, alive: int = 20) -> Argv:
    """Starts short-lived processes without a pause, so that no list of them is ever complete."""
    return shell(
        'echo up; while :; do n=0; while [ "$n" -lt "$1" ]; do n=$((n + 1)); '
        "(sleep 0.01; sleep 0.01 &) & done; wait; done",
        str(alive),
    )


_DOUBLE_FORK: Final = """
import os, signal, sys, time
stays, deaf = sys.argv[1] == "stay", sys.argv[2] == "deaf"
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if deaf:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.write(write, b"%d" % os.getpid())
        os.closerange(0, 256)
        while True:
            time.sleep(3600)
    os._exit(0)
os.wait()
print("grandchild", os.read(read, 32).decode(), flush=True)
if not stays:
    sys.exit(0)
while True:
    time.sleep(3600)
"""


def double_forking(*, stays: bool = True, deaf: bool = True) -> Argv:
    """Leaves a grandchild in a session of its own, without descriptors, in `/`, ignoring signals; prints
    `grandchild PID`. Without `stays` the main process ends with 0 at once."""
    return python(_DOUBLE_FORK, "stay" if stays else "leave", "deaf" if deaf else "hears")


def crashing(
    *, code: int = 1, signal: int = 0, after_seconds: float = 0.0, after_bytes: int = 0, says: str = ""
) -> Argv:
    """Ends by itself: with `code`, or by `signal`, after a delay, some output, or a last line."""
    words = f"printf '%s\\n' {_quoted(says)}; " if says else ""
    output = f"head -c {after_bytes} /dev/zero | tr '\\0' x; " if after_bytes else ""
    delay = f"sleep {after_seconds:g}; " if after_seconds else ""
    end = f"kill -{signal} $$; sleep 3600" if signal else f"exit {code}"
    return shell(f"{words}{output}{delay}{end}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def megabyte_then_exit(*, code: int = 1, lines: int = 16_384) -> Argv:
    """Writes numbered lines of 64 bytes as fast as one process can, and is gone milliseconds later."""
    return python(
        "import os, sys\n"
        "lines, code = int(sys.argv[1]), int(sys.argv[2])\n"
        f"text = ''.join(f'line {{n}} {{n * {_FACTOR} % {_MODULUS}}} '.ljust(63, 'x') + '\\n' "
        "for n in range(1, lines + 1)).encode()\n"
        "view = memoryview(text)\n"
        "while view:\n    view = view[os.write(1, view):]\n"
        "os._exit(code)",
        str(lines),
        str(code),
    )


def flooding(*, line: str = "flood " + "x" * 57) -> Argv:
    """The same line for ever, as fast as it is taken."""
    return shell('exec yes "$1"', line)


def to_dev_stderr(lines: int = 1000) -> Argv:
    """Numbered lines, then one more through `/dev/stderr`, which truncates where output is a file."""
    return chatty(lines=lines, then="echo last > /dev/stderr; exec sleep 86400")


_HOLD_PORT: Final = """
import socket, sys, time
held = []
for word in sys.argv[1:]:
    kind, _, port = word.partition(":")
    held.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM))
    held[-1].bind(("127.0.0.1", int(port)))
    if kind == "tcp":
        held[-1].listen()
print("up", *sys.argv[1:], flush=True)
while True:
    time.sleep(3600)
"""


def holding_ports(*, tcp: int | str | None = None, udp: int | str | None = None) -> Argv:
    """Binds loopback ports (numbers, or `%PORT%` in a group), prints `up tcp:N udp:N`; ends with 1 and
    `Address already in use` when one is taken."""
    words = [f"{kind}:{port}" for kind, port in (("tcp", tcp), ("udp", udp)) if port is not None]
    return python(_HOLD_PORT, *words)


_PLAYERS: Final = """
import json, os, pathlib, ssl, sys, time, urllib.request
file = pathlib.Path(sys.argv[1]) / os.environ["CORRAL_INSTANCE_ID"]
print("up", flush=True)
told, again = None, 0.0
while True:
    count = int(file.read_text() or 0) if file.exists() else 0
    if count != told or time.monotonic() > again:
        request = urllib.request.Request(
            os.environ["CORRAL_API_URL"] + "/api/v1/workload/players",
            data=json.dumps({"count": count}).encode(),
            headers={
                "Authorization": "Bearer " + os.environ["CORRAL_INSTANCE_TOKEN"],
                "Content-Type": "application/json",
            },
        )
        try:
            trust = ssl.create_default_context(cafile=os.environ.get("CORRAL_API_CA_FILE"))
            urllib.request.urlopen(request, timeout=5, context=trust).close()
            told, again = count, time.monotonic() + float(sys.argv[2])
            print("told", count, flush=True)
        except OSError as error:
            print("not told", error, flush=True)
    time.sleep(0.1)
"""


def reporting_players(directory: str, *, every: float = 1.0) -> Argv:
    """Reports as many players as the file with its instance's id in this directory says, 0 without one: each change,
    and again after so many seconds. Ends by the first signal."""
    return python(_PLAYERS, directory, str(every))


def allocating(megabytes: int) -> Argv:
    """Really uses memory, 8 MiB a step; prints `up` when it has all of it."""
    return python(
        "import sys, time\nheld = []\n"
        "for _ in range(int(sys.argv[1]) // 8):\n    held.append(b'x' * (8 << 20))\n"
        "print('up', flush=True)\nwhile True:\n    time.sleep(3600)",
        str(megabytes),
    )


def one_long_line(megabytes: int = 10) -> Argv:
    """A line of that many MiB without an end, then a newline and `up`."""
    return shell('head -c "$1" /dev/zero | tr "\\0" y; echo; echo up; exec sleep 86400', str(megabytes << 20))


HOSTILE: Final = (
    b"\xff\xfe\x80 invalid \xc3(\n"
    b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\n"
    b"<script>alert(1)</script>\n"
    b"carriage\rreturn\r\n"
    b"nul \x00 byte\n"
    b"\xe2\x80\xaeright to left\n"
)


def hostile_bytes() -> Argv:
    """Invalid UTF-8, escape codes, markup, NUL: exactly `HOSTILE`, then `up`."""
    escaped = "".join(f"\\{byte:03o}" for byte in HOSTILE)
    return shell(f"printf '{escaped}'; echo up; exec sleep 86400")


_DESCRIBE: Final = """
import json, os, resource, time
status = {key: value.strip() for key, _, value in (line.partition(":") for line in open("/proc/self/status"))}
keys = ("SigBlk", "SigIgn", "NoNewPrivs", "CapAmb", "CapEff")
umask = os.umask(0)
print(json.dumps({
    "environ": dict(os.environ), "cwd": os.getcwd(), "uid": os.getuid(), "gid": os.getgid(),
    "groups": os.getgroups(), "umask": umask, "session": os.getsid(0) == os.getpid(), "pid": os.getpid(),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0], "tty": [os.isatty(fd) for fd in (0, 1, 2)],
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
    **{key: status.get(key) for key in keys},
}), flush=True)
while True:
    time.sleep(3600)
"""


def describing_itself() -> Argv:
    """One line of JSON: environment, user, directory, signals, limits, descriptors. Then it stays."""
    return python(_DESCRIBE)


class NumberedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result for the numbered lines of one workload."""

    first: int
    last: int
    """0 when there was no numbered line."""
    lost: tuple[int, ...]
    """Missing numbers between first and last."""
    doubled: tuple[int, ...]
    reordered: tuple[int, ...]
    """Numbers that came after a greater one, for the first time."""
    damaged: tuple[str, ...]
    """Lines with the tag that are no whole numbered line."""

    @property
    def perfect(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.damaged)

    def check(self, *, first: int = 1, last: int | None = None) -> None:
        """Fail unless all came, once, in order, from `first` (to `last`)."""
        assert self.perfect, self._description()
        assert self.first == first, f"begins with line {self.first}, not {first}"
        assert last is None or self.last == last, f"ends with line {self.last}, not {last}"

    def _description(self) -> str:
        parts = [
            f"{len(values)} {name} (from {values[0]!r})"
            for name in ("lost", "doubled", "reordered", "damaged")
            if (values := getattr(self, name))
        ]
        return f"lines {self.first} to {self.last}: {', '.join(parts)}"


def read_numbered(output: bytes | str | Iterable[str], *, tag: str = "line") -> NumberedOutput:
    """Check the lines that begin with `tag`. In bytes and text an unfinished last line does not count."""
    numbers: list[int] = []
    damaged: list[str] = []
    whole = re.compile(rf"{re.escape(tag)} (\d+) (\d+)( x+)?")
    for line in _lines(output):
        if not line.startswith(tag):
            if tag in line:  # the end of one line glued to the next
                damaged.append(line[:200])
            continue
        found = whole.fullmatch(line)
        if found and checksum(int(found[1])) == int(found[2]):
            numbers.append(int(found[1]))
        else:
            damaged.append(line[:200])
    return _checked(numbers, damaged)


def _lines(output: bytes | str | Iterable[str]) -> Iterable[str]:
    if isinstance(output, bytes):
        output = output.decode("utf-8", "replace")
    if isinstance(output, str):
        return output.split("\n")[:-1]
    return (line.rstrip("\n") for line in output)


def _checked(numbers: list[int], damaged: list[str]) -> NumberedOutput:
    seen: set[int] = set()
    doubled: list[int] = []
    reordered: list[int] = []
    highest = 0
    for number in numbers:
        if number in seen:
            doubled.append(number)
        elif number < highest:
            reordered.append(number)
        seen.add(number)
        highest = max(highest, number)
    first = min(numbers, default=0)
    lost = [number for number in range(first, highest) if number not in seen] if numbers else []
    return NumberedOutput(
        first=first,
        last=highest,
        lost=tuple(lost),
        doubled=tuple(doubled),
        reordered=tuple(reordered),
        damaged=tuple(damaged),
    )
