"""Calling the API from a test's loop."""

from __future__ import annotations

import asyncio
from typing import Any

from corral.cli.api.client import Client


async def call(url: str, token: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request, the way the CLI makes it."""
    client = Client(url=url, token=token)
    try:
        match method:
            case "GET":
                return await asyncio.to_thread(client.get, path)
            case "POST":
                return await asyncio.to_thread(client.post, path, body)
            case "PUT":
                return await asyncio.to_thread(client.put, path, body or {})
            case "PATCH":
                return await asyncio.to_thread(client.patch, path, body or {})
            case "DELETE":
                return await asyncio.to_thread(client.delete, path)
        raise ValueError(f"the API has no method {method}")
    finally:
        client.close()
