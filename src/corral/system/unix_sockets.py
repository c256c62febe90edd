"""Unix sockets that only their owner can open."""

from __future__ import annotations

import os
import pathlib
import socket


def listen_privately(path: pathlib.Path, *, backlog: int) -> socket.socket:
    """A listening socket with mode 0600, however long the path to it is. One that is there is replaced: whoever calls this
    holds the lock of the directory."""
    path.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it has a name, so that there is no moment without
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener
