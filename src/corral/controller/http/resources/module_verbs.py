"""What an operator does with an installed module. Each verb returns when the module has settled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from corral.controller.cluster_state import ClusterState
from corral.controller.http.call import Body, Call, NoQuery, Query
from corral.controller.http.fields import Text
from corral.controller.http.resources.module_shapes import ONE, ModuleShape, module_shape
from corral.controller.http.resources.modules import Settings, the_module
from corral.controller.http.route_table import Act, Read, Route
from corral.controller.modules.service import Modules
from corral.controller.mutations import Mutation
from corral.controller.sessions.live import LiveNodes
from corral.domain.permissions import Permission

Verb = Callable[..., Awaitable[object]]


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


async def _activate(modules: Modules, call: Call[Any, Any]) -> object:
    return await modules.activate(call.path["id"], actor=call.caller.actor)


async def _deactivate(modules: Modules, call: Call[Any, Any]) -> object:
    return await modules.deactivate(call.path["id"], actor=call.caller.actor)


async def _pause(modules: Modules, call: Call[Pause, NoQuery]) -> object:
    return await modules.pause(call.path["id"], reason=call.body.reason, actor=call.caller.actor)


async def _resume(modules: Modules, call: Call[Any, Any]) -> object:
    return await modules.resume(call.path["id"], actor=call.caller.actor)


async def _recover(modules: Modules, call: Call[None, RecoverQuery]) -> object:
    return await modules.recover(call.path["id"], actor=call.caller.actor, node=call.query.node)


async def _reload(modules: Modules, call: Call[Any, Any]) -> object:
    return await modules.reload(call.path["id"], actor=call.caller.actor)


async def _configure(modules: Modules, call: Call[dict[str, Any], NoQuery]) -> object:
    return await modules.configure(call.path["id"], call.body, actor=call.caller.actor)


async def get_configuration(state: ClusterState, call: Call[None, NoQuery]) -> ConfigurationShape:
    record = the_module(state, call.path).record
    return ConfigurationShape(settings=record.settings, schema=record.manifest.config)


async def get_health(state: ClusterState, modules: Modules, call: Call[None, NoQuery]) -> ModuleHealthShape:
    the_module(state, call.path)
    answer = await modules.health(call.path["id"])
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
    async def handler(
        state: ClusterState, modules: Modules, nodes: LiveNodes, call: Call[Any, Any]
    ) -> Mutation:
        the_module(state, call.path)
        await verb(modules, call)
        stored = the_module(state, call.path)
        return Mutation(
            action=f"modules.{name}",
            subject=stored.record.id,
            steps=(),
            body=module_shape(state, modules, nodes, call, stored),
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
