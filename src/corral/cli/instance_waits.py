"""Waiting for instances: until one runs, until one has ended."""

from __future__ import annotations

from typing import Any, Final

from corral.cli.client import segment
from corral.cli.failure import Refused
from corral.cli.output import Item
from corral.cli.session import Session
from corral.cli.waiting import wait_until

INSTANCES: Final = "/api/v1/instances"
ENDED: Final = ("STOPPED", "CRASHED")


def until_running(session: Session, begun: Item, timeout: int) -> Any:
    """The instance when it runs, `begun` being what the start was answered with. A start that fails
    for good is a refusal with its reason."""
    id = str(begun["id"])
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{INSTANCES}/{segment(id)}")]
        now = found[0]
        if now.get("state") in ENDED and now.get("incarnation", 0) >= begun.get("incarnation", 0):
            raise Refused(
                f"instance '{id}' did not run: {_why(now)}", hint=f"corral why {id}", code="START_FAILED"
            )
        runs = now.get("state") == "RUNNING" and now.get("wanted") == "run"
        return runs, f"instance '{id}' is {now.get('state')} on node '{now.get('node')}'"

    wait_until(look, timeout=timeout, what=f"instance '{id}' was not RUNNING")
    return found[0]


def until_ended(session: Session, id: str, timeout: int) -> Any:
    """The instance when nothing of it is left."""
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{INSTANCES}/{segment(id)}")]
        return found[0].get("state") in ENDED, f"instance '{id}' is {found[0].get('state')}"

    wait_until(look, timeout=timeout, what=f"instance '{id}' had not ended")
    return found[0]


def _why(instance: Item) -> str:
    failure = instance.get("start_failure") or {}
    if failure.get("message"):
        return f"{failure.get('code')}: {failure['message']}"
    exit = instance.get("exit") or {}
    return str(exit.get("summary") or instance.get("reason") or instance.get("state"))
