"""A login that a person approves in a browser, on whichever device has one: a code to type there, and a wait for it."""

from __future__ import annotations

from typing import Final

from corral.cli.api.client import Client
from corral.cli.failure import CommandRefused, Unreachable, note
from corral.cli.password_login import Answer, send

WAIT_SECONDS: Final = 60.0
"""The controller answers within half of it."""
_DEVICE: Final = "/api/v1/auth/device"


def log_in_by_browser(client: Client) -> Answer:
    """The answer with the session's token, once somebody has approved it. LOGIN_FAILED when that was refused, or came too late."""
    begun = client.post(_DEVICE)
    if not isinstance(begun, dict) or not begun.get("device_code"):
        raise Unreachable(f"{client.url} does not answer like a Corral controller", hint="check the address")
    note(
        f"open {client.url}{begun['page']} in a browser, log in there, and enter the code {begun['user_code']}"
    )
    while True:
        try:
            return send(client, {"device_code": begun["device_code"]})
        except CommandRefused as refusal:
            if refusal.code != "LOGIN_PENDING":
                raise
