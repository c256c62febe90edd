"""Talking to the daemon of this machine over its socket: one JSON line there, one back."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
from typing import Any

from corral.cli.failure import Refused, Unreachable

_NAME = "daemon.sock"


def ask(data: pathlib.Path, verb: str, **fields: Any) -> dict[str, Any]:
    """The daemon's answer; Refused with its reason, Unreachable when there is no daemon."""
    with _connect(data) as connection, connection.makefile("rwb") as stream:
        try:
            stream.write(json.dumps({"verb": verb, **fields}).encode() + b"\n")
            stream.flush()
            line = stream.readline()
        except OSError as error:
            raise Unreachable(f"the daemon of {data} hung up: {error.strerror or error}") from None
    if not line:
        raise Unreachable(f"the daemon of {data} ended before it answered", hint="see its log")
    answer: dict[str, Any] = json.loads(line)
    if not answer.get("ok"):
        raise Refused(
            str(answer.get("message", "refused")),
            hint=answer.get("hint"),
            code=str(answer.get("code", "")),
        )
    return answer


def is_served(data: pathlib.Path) -> bool:
    """Does a daemon listen there?"""
    with contextlib.suppress(Unreachable):
        _connect(data).close()
        return True
    return False


def _connect(data: pathlib.Path) -> socket.socket:
    """Through a descriptor of the directory: the path may be longer than an address can hold."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = -1
    try:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        connection.connect(f"/proc/self/fd/{directory}/{_NAME}")
    except PermissionError:
        connection.close()
        raise Refused(f"the daemon of {data} belongs to another user", hint="run this as that user") from None
    except OSError as error:
        connection.close()
        raise Unreachable(
            f"no daemon serves {data}: {error.strerror or error}",
            hint="start it, or check --data; 'corral local --data DIR stop-all' works without",
        ) from None
    finally:
        if directory >= 0:
            os.close(directory)
    return connection
