"""What an operator does with an installed module. Each verb returns when the module has settled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.call import Body, Call, NoQuery, Query
from corral.controller.http.fields import Text
from corral.controller.http.resources.module_shapes import ONE, ModuleShape, module_shape
from corral.controller.http.resources.modules import Settings, the_module
from corral.controller.http.route_table import Act, Read, Route
from corral.controller.http.setting import Leading
from corral.controller.mutations import Mutation
from corral.domain.permissions import Permission

Verb = Callable[[Leading, Call[Any, Any]], Awaitable[object]]


class Pause(Body, frozen=True, kw_only=True):
    reason: Annotated[Text, msgspec.Meta(min_length=1)]


class RecoverQuery(Query, frozen=True, kw_only=True):
    node: (
        Annotated[
            str,
            msgspec.Meta(max_length=63, description="On this node alone; one that is away is told later."),
        ]
        | None
    ) = None


class ConfigurationShape(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force, and the JSON Schema that settings have to fit."""

    settings: dict[str, Any]
    schema: dict[str, Any]


class ModuleHealthShape(msgspec.Struct, frozen=True, kw_only=True):
    healthy: bool
    detail: str


async def _activate(leading: Leading, call: Call[Any, Any]) -> object:
    return await leading.modules.activate(call.path["id"], actor=call.caller.actor)


async def _deactivate(leading: Leading, call: Call[Any, Any]) -> object:
    return await leading.modules.deactivate(call.path["id"], actor=call.caller.actor)


async def _pause(leading: Leading, call: Call[Pause, NoQuery]) -> object:
    return await leading.modules.pause(call.path["id"], reason=call.body.reason, actor=call.caller.actor)


async def _resume(leading: Leading, call: Call[Any, Any]) -> object:
    return await leading.modules.resume(call.path["id"], actor=call.caller.actor)


async def _recover(leading: Leading, call: Call[None, RecoverQuery]) -> object:
    return await leading.modules.recover(call.path["id"], actor=call.caller.actor, node=call.query.node)


async def _reload(leading: Leading, call: Call[Any, Any]) -> object:
    return await leading.modules.reload(call.path["id"], actor=call.caller.actor)


async def _configure(leading: Leading, call: Call[dict[str, Any], NoQuery]) -> object:
    return await leading.modules.configure(call.path["id"], call.body, actor=call.caller.actor)


async def get_configuration(leading: Leading, call: Call[None, NoQuery]) -> ConfigurationShape:
    record = the_module(leading.state, call.path).record
    return ConfigurationShape(settings=record.settings, schema=record.manifest.config)


async def get_health(leading: Leading, call: Call[None, NoQuery]) -> ModuleHealthShape:
    the_module(leading.state, call.path)
    answer = await leading.modules.health(call.path["id"])
    return ModuleHealthShape(healthy=answer.healthy, detail=answer.detail)


def _verb(
    name: str,
    summary: str,
    verb: Verb,
    *,
    method: str = "POST",
    body: Any = None,
    query: type[Query] = NoQuery,
) -> Act:
    async def handler(leading: Leading, call: Call[Any, Any]) -> Mutation:
        the_module(leading.state, call.path)
        await verb(leading, call)
        stored = the_module(leading.state, call.path)
        return Mutation(
            action=f"modules.{name}",
            subject=stored.record.id,
            steps=(),
            body=module_shape(leading, call, stored),
        )

    return Act(
        method=method,
        path=f"{ONE}/{name}",
        permission=Permission.MODULES_MANAGE,
        summary=summary,
        body=body,
        query=query,
        response=ModuleShape,
        handler=handler,
        audited_within=True,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _verb("activate", "Run a module, now and from now on", _activate),
    _verb("deactivate", "Stop a module until somebody activates it", _deactivate),
    _verb("pause", "Hold a module, with a reason", _pause, body=Pause),
    _verb("resume", "Let a paused module run again", _resume),
    _verb(
        "recover",
        "Try a failed module again, here and on every node where it failed",
        _recover,
        query=RecoverQuery,
    ),
    _verb("reload", "Let a module take its settings in again, without a restart", _reload),
    _verb(
        "config",
        "Set all settings of a module; what is left out goes back to the default",
        _configure,
        method="PUT",
        body=Settings,
    ),
    Read(
        method="GET",
        path=f"{ONE}/config",
        permission=Permission.MODULES_MANAGE,
        summary="Show a module's settings and their schema",
        response=ConfigurationShape,
        handler=get_configuration,
    ),
    Read(
        method="GET",
        path=f"{ONE}/health",
        permission=Permission.MODULES_READ,
        summary="Ask a module how it is",
        response=ModuleHealthShape,
        handler=get_health,
    ),
)
