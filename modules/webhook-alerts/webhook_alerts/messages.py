"""What is sent: the body in the form a service understands, and the proof that it is ours."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from corral.sdk import Event
from webhook_alerts.settings import Destination


def sentence(event: Event) -> str:
    """An event as people read it."""
    reason = event.data.get("reason")
    what = event.type.replace("_", " ").lower()
    return f"{event.subject}: {what}" + (f" ({reason})" if reason else "")


def body_of(destination: Destination, event: Event) -> bytes:
    bodies: dict[str, dict[str, Any]] = {
        "discord": {"content": sentence(event)[:2000], "allowed_mentions": {"parse": []}},
        "slack": {"text": sentence(event)[:4000]},
    }
    plain = {
        "type": event.type,
        "subject": event.subject,
        "at": event.at,
        "cursor": event.cursor,
        "data": event.data,
    }
    return msgspec.json.encode(bodies.get(destination.format, plain))


def headers_of(destination: Destination, *, delivery: str, type: str, body: bytes) -> dict[str, str]:
    """`Corral-Signature` is the HMAC-SHA256 of the body, in hex; a receiver with the secret can check it."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "corral-webhook-alerts/1.0",
        "Corral-Delivery": delivery,
        "Corral-Event": type,
    }
    if destination.secret:
        digest = hmac.new(destination.secret.encode(), body, hashlib.sha256).hexdigest()
        headers["Corral-Signature"] = f"sha256={digest}"
    return headers


def pause_before(attempt: int) -> float:
    """Seconds before the next try after so many: 1, 2, 4, … at most ten minutes."""
    return float(min(2 ** (attempt - 1), 600))
