"""Operations on an installed module. Each returns when the module has settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody, Text
from corral.controller.http.pipeline.route_table import Act, Read, Route, path_id
from corral.controller.http.resources.modules.module_schemas import ONE, ModuleShape, module_shape
from corral.controller.http.resources.modules.modules import Settings, the_module
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.modules.verbs import VERBS, Verb
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import refuse_hidden


class Pause(RequestBody, frozen=True, kw_only=True):
    reason: Annotated[Text, msgspec.Meta(min_length=1)]


class RecoverQuery(Query, frozen=True, kw_only=True):
    node: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=63, description="On this node alone; one that is away receives it later."
            ),
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


async def get_configuration(state: ClusterState, call: ApiCall[None, NoQuery]) -> ConfigurationShape:
    record = the_module(state, call.path).record
    return ConfigurationShape(settings=record.settings, schema=record.manifest.config)


async def get_health(
    state: ClusterState, modules: Modules, call: ApiCall[None, NoQuery]
) -> ModuleHealthShape:
    the_module(state, call.path)
    answer = await modules.health(call.path["id"])
    return ModuleHealthShape(healthy=answer.healthy, detail=answer.detail)


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a verb beside the id of the module."""

    method: str = "POST"
    name: str = ""
    """In the path, where it is not the verb."""
    body: Any = None
    query: type[Query] = NoQuery
    arguments: Callable[[ApiCall[Any, Any]], dict[str, Any]] = lambda _: {}


def _whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, unless values of them were hidden from their reader. INVALID_FIELD."""
    refuse_hidden(settings, field="settings")
    return settings


_REQUESTS: Final[Mapping[Verb, _Request]] = {
    Verb.PAUSE: _Request(body=Pause, arguments=lambda call: {"reason": call.body.reason}),
    Verb.RECOVER: _Request(query=RecoverQuery, arguments=lambda call: {"node": call.query.node}),
    Verb.CONFIGURE: _Request(
        method="PUT", name="config", body=Settings, arguments=lambda call: {"settings": _whole(call.body)}
    ),
}


def _route(verb: Verb) -> Act:
    request = _REQUESTS.get(verb, _Request())

    async def handler(
        state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[Any, Any]
    ) -> Mutation:
        the_module(state, call.path)
        await modules.act(call.path["id"], verb, actor=call.caller.actor, **request.arguments(call))
        stored = the_module(state, call.path)
        return Mutation(
            action=f"modules.{verb}",
            subject=stored.record.id,
            steps=(),
            body=module_shape(state, modules, nodes, call, stored),
        )

    return Act(
        method=request.method,
        path=f"{ONE}/{request.name or verb}",
        permission=Permission.MODULES_MANAGE,
        summary=VERBS[verb].summary,
        body=request.body,
        query=request.query,
        response=ModuleShape,
        handler=handler,
        action=f"modules.{verb}",
        subject=path_id,
    )


ROUTES: Final[tuple[Route, ...]] = (
    *(_route(verb) for verb in VERBS if verb is not Verb.UNINSTALL),
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
