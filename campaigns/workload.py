"""A workload that checks itself: everything it writes follows from its name, and a side file says how much
of it was written.

It takes a lock by its instance's id, so that a second live copy is noticed by itself, writes for a while, says
in the side directory how it is going to end, and ends so. Run by `python -I -S`, without anything of ours.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

LEFT_ON_REQUEST = 77
TWO_COPIES = 99
TOTAL = struct.Struct("<Q")
_SIGNALS = (signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGTERM)


def chunks(name: str) -> Iterator[bytes]:
    """What the workload of this name writes, for ever; its first line is its name."""
    dice = random.Random(name)  # noqa: S311
    yield f"begin {name}\n".encode()
    for number in itertools.count(1):
        shape = dice.random()
        length = dice.randrange(20, 120) if shape < 0.985 else dice.randrange(1000, 40_000)
        lines = 1 if shape < 0.9 else dice.randrange(1, 60) if shape < 0.985 else 1
        text = f"{number} {dice.getrandbits(64):x} ".ljust(length, "x") + "\n"
        yield text.encode() * lines


def main(side: str, kind: str) -> None:
    instance = os.environ["CORRAL_INSTANCE_ID"]
    _be_the_only_one(side, instance)
    name = f"{instance}.{os.getpid()}.{time.time_ns()}"
    dice = random.Random(name + kind)  # noqa: S311
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: asked.append(number))
    if os.isatty(1):
        _write_through()
    totals = os.open(f"{side}/{name}.side", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    until = time.monotonic() + _lifetime(kind, dice)
    written = 0
    for chunk in chunks(name):
        left = memoryview(chunk)
        while left:
            count = os.write(1, left)
            written += count
            os.pwrite(totals, TOTAL.pack(written), 0)
            left = left[count:]
        if asked or time.monotonic() > until:
            break
        time.sleep(0 if kind == "flood" and dice.random() < 0.98 else dice.uniform(0.001, 0.03))
    _end(side, name, LEFT_ON_REQUEST if asked else None, dice)


def _be_the_only_one(side: str, instance: str) -> None:
    lock = os.open(f"{side}/{instance}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(f"{side}/violations", "a") as file:  # noqa: PTH123 - imports are paid for by each run
            file.write(f"two live copies of {instance}\n")
        os._exit(TWO_COPIES)
    os.set_inheritable(lock, True)


def _write_through() -> None:
    """No carriage returns are added on the way through a terminal."""
    settings = termios.tcgetattr(1)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(1, termios.TCSANOW, settings)


def _lifetime(kind: str, dice: random.Random) -> float:
    return 1e9 if kind == "long" else dice.uniform(1.0, 12.0)


def _end(side: str, name: str, code: int | None, dice: random.Random) -> None:
    """Say how, then do so."""
    if code is None:
        code = 0 if dice.random() < 0.2 else dice.randrange(1, 120)
    number = dice.choice(_SIGNALS) if code != LEFT_ON_REQUEST and dice.random() < 0.25 else None
    told = f"code {code}" if number is None else f"signal {int(number)}"
    descriptor = os.open(f"{side}/{name}.end", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, told.encode())
    if number is not None:
        os.kill(os.getpid(), number)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
