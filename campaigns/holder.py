"""A workload that holds what it was given: its instance's id and its ports, each by a lock that a second holder would
trip over. It lives until it is asked to end. Run by `python -I -S`, without anything of ours.

SIGTERM and SIGUSR1 end it with 0, SIGUSR2 with 3; of the kind `fails` it ends with 1 at once.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys

TWO_HOLDERS = 99


def main(side: str, kind: str, address: str, *ports: str) -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: os._exit(3 if number == signal.SIGUSR2 else 0))
    if kind == "fails":
        os._exit(1)
    _hold(side, os.environ["CORRAL_INSTANCE_ID"])
    for port in ports:
        _hold(side, f"{address}:{port}")
    os.write(1, b"holds\n")
    while True:
        signal.pause()


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
