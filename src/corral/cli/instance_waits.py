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
                f"instance '{id}' did not run: {why_not(now)}", hint=f"corral why {id}", code="START_FAILED"
            )
        runs = now.get("state") == "RUNNING" and now.get("wanted") == "run"
        return runs, f"instance '{id}' is {_progress(now)}"

    wait_until(look, timeout=timeout, what=f"instance '{id}' was not RUNNING")
    return found[0]


def until_ended(session: Session, asked: Item, timeout: int) -> Any:
    """The instance when nothing is left of the run that was to end, `asked` being what the order was
    answered with. Its group may have begun another under the same id by then."""
    id = str(asked["id"])
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{INSTANCES}/{segment(id)}")]
        over = found[0].get("state") in ENDED or started_again(asked, found[0])
        return over, f"instance '{id}' is {found[0].get('state')}"

    wait_until(look, timeout=timeout, what=f"instance '{id}' had not ended")
    return found[0]


def started_again(asked: Item, now: Item) -> bool:
    return bool(now.get("incarnation", 0) > asked.get("incarnation", 0) and now.get("wanted") == "run")


def why_not(instance: Item) -> str:
    """Why it does not run, as far as anybody knows."""
    if failed := start_trouble(instance):
        return failed
    exit = instance.get("exit") or {}
    return str(exit.get("summary") or instance.get("reason") or instance.get("state"))


def start_trouble(instance: Item) -> str:
    """What went wrong with the start of one that has not started; empty when nothing did."""
    failure = instance.get("start_failure") or {}
    if not failure.get("message") or instance.get("started_at"):
        return ""
    return f"{failure.get('code')} at {failure.get('stage')}: {failure['message']}"


def stage_text(instance: Item) -> str:
    """What its node is doing for it while it is prepared, and what it waits for there; empty: nothing."""
    stage = str(instance.get("stage") or "")
    waits = instance.get("reason") if instance.get("state") == "PREPARING" else ""
    return f"{stage}: {waits}" if stage and waits else stage


def _progress(instance: Item) -> str:
    seen = f"{instance.get('state')} on node '{instance.get('node')}'"
    if stage := stage_text(instance):
        seen += f" ({stage})"
    trouble = start_trouble(instance)
    return f"{seen}; last {trouble}" if trouble else seen
