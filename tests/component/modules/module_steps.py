"""Steps that tests of a controller's modules share."""

from __future__ import annotations

import pathlib
from typing import Any

from corral.controller.modules.installer import InstallAnswer, InstallOptions
from corral.controller.modules.module_service import Modules
from corral.controller.state.ledger import Actor
from corral.controller.term.leader_term import LeaderTerm
from corral.domain.events import Event
from corral.domain.modules.phases import ModulePhase
from corral.errors import CorralError
from corral.testing.cluster import LocalController
from corral.testing.waiting import eventually

OPERATOR = Actor(name="operator", address="127.0.0.1")


def term_of(controller: LocalController) -> LeaderTerm:
    term = controller.app.role.term
    assert term is not None, "the controller does not lead"
    return term


def modules_of(controller: LocalController) -> Modules:
    return term_of(controller).modules


async def install(
    controller: LocalController, archive: pathlib.Path, *, sidecar: Any = None, **options: Any
) -> InstallAnswer:
    return await modules_of(controller).install(
        archive, sidecar=sidecar, options=InstallOptions(**options), actor=OPERATOR
    )


async def refusal(
    controller: LocalController, archive: pathlib.Path, *, sidecar: Any = None, **options: Any
) -> CorralError:
    try:
        answer = await install(controller, archive, sidecar=sidecar, **options)
    except CorralError as error:
        return error
    raise AssertionError(f"it was taken: {answer}")


async def events_of(controller: LocalController, *, about: str = "") -> list[Event]:
    store = term_of(controller).hub._log
    found = await store.events(await store.cursor_at(0), limit=1000)  # type: ignore[attr-defined]
    return [event for event in found if not about or event.subject == about]


async def names_of(controller: LocalController, id: str) -> list[str]:
    return [event.type.value for event in await events_of(controller, about=id)]


async def audited(controller: LocalController) -> list[tuple[str, str, str]]:
    page = await controller.call("GET", "/api/v1/audit?limit=200")
    return [
        (entry["actor"], entry["action"], entry["subject"])
        for entry in page["items"]
        if entry["action"].startswith("modules.")
    ]


async def settled(controller: LocalController, id: str, phase: ModulePhase) -> None:
    await eventually(
        lambda: modules_of(controller).find(id).phase is phase,
        state=lambda: modules_of(controller).find(id),
    )
