"""The keeper's main program: started as `python -I -S`, it detaches from the process that started it.

Arguments: its directory, and a descriptor on which it writes `1` (ready) or `0` (another keeper is).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import socket
import sys

from corral.runtimes.keeper import forked_process, linux_calls
from corral.runtimes.keeper.forked_process import log
from corral.runtimes.keeper.keeper import Keeper
from corral.runtimes.keeper.keeper_protocol import lock_name
from corral.runtimes.keeper.proc_facts import boot_id

LOG_NAME = "keeper.log"
_BACKLOG = 4096


def main() -> None:
    directory, name, ready = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if os.fork():  # our parent need not wait for us
        os._exit(0)
    os.set_inheritable(ready, False)
    os.setsid()
    os.chdir(directory)
    os.umask(0o077)
    _own_log()
    forked_process.set_signals()
    linux_calls.set_name(b"corral-keeper")
    linux_calls.become_subreaper()
    if not _take_lock(name):
        os.write(ready, b"0")
        os._exit(0)
    listener = _listen(name)
    keeper = Keeper(listener, forked_process.child_signals())
    boot_id()  # cached: every fork inherits it
    gc.disable()
    gc.freeze()
    os.write(ready, b"1")
    os.close(ready)
    log("ready")
    keeper.serve()
    os.unlink(name)  # noqa: PTH108
    log("quit")
    os._exit(0)


def _own_log() -> None:
    """stdin and stdout to /dev/null, stderr to a small file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(LOG_NAME, flags, 0o600)
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.dup2(descriptor, 2)
    os.close(nowhere)
    os.close(descriptor)


def _take_lock(name: str) -> bool:
    """Take the lock: one keeper per directory and protocol. It is held until the keeper ends."""
    descriptor = os.open(lock_name(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return True


def _listen(name: str) -> socket.socket:
    """Bind the socket by a name relative to the directory: a longer path would not fit into an address."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
