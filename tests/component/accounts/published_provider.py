"""A published provider of OpenID Connect: the program that others test their clients with, as a process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator

from corral.testing.ports import free_addresses
from corral.testing.waiting import eventually


@contextlib.asynccontextmanager
async def published_provider(directory: pathlib.Path) -> AsyncIterator[str]:
    """`oidc-provider-mock` as a process; its address."""
    (address,) = free_addresses(1)
    users = [
        {"sub": "u-1", "preferred_username": "alice", "groups": ["ops", "admins"]},
        {"sub": "u-2", "preferred_username": "bob", "groups": ["guests"]},
    ]
    claims = [part for user in users for part in ("--user-claims", json.dumps(user))]
    program = [sys.executable, "-m", "oidc_provider_mock", "--port", address.rpartition(":")[2], *claims]
    with (directory / "provider.log").open("wb") as log:
        process = subprocess.Popen(program, stderr=log, stdout=log, env={**os.environ, "NO_COLOR": "1"})
        try:
            await eventually(lambda: asyncio.to_thread(answers, address))
            yield f"http://{address}"
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


def answers(address: str) -> bool:
    try:
        with contextlib.closing(http.client.HTTPConnection(address)) as connection:
            connection.request("GET", "/.well-known/openid-configuration")
            return connection.getresponse().status == 200
    except OSError:
        return False
