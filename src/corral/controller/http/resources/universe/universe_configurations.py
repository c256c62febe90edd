"""Universe's configurations: groups, in its shape and back."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, Confirmed, NoQuery, RequestBody
from corral.controller.http.pipeline.caller_limits import RequestRates
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Mutate, Read, Route
from corral.controller.http.pipeline.scoping import Scoping, check_scope, refuse_group_outside
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import ConfirmedOrDry, DryRunQuery
from corral.controller.http.resources.groups.document_scopes import refuse_references
from corral.controller.http.resources.groups.group_changes import admit_change, the_group, writing
from corral.controller.http.resources.groups.groups import (
    Cascade,
    create_group,
    delete_group,
    revision,
)
from corral.controller.http.resources.universe.universe_schemas import universe_name
from corral.controller.instances import group_changes
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.permissions import Permission
from corral.domain.universe.configurations import MappedConfiguration, map_configuration, origin_of
from corral.domain.universe.field_reports import MOST_ENTRIES
from corral.domain.universe.group_configurations import (
    configuration_of,
    configuration_patch,
    faults_of,
    keeps_command,
    new_document,
)
from corral.errors import Code, Rejected

_BODY: Final = "the body"
_OF_FIELDS: Final = (400, 422)
"""Statuses of what is wrong with a field of a group."""
_MANY: Final = msgspec.Meta(max_length=MOST_ENTRIES)
Line = Annotated[str, msgspec.Meta(max_length=131_072)]
Value = Line | bool | int | float
Values = Annotated[dict[str, Value], _MANY]
Texts = Annotated[list[Line], _MANY]


class UniverseTemplateEntry(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    """A template, or with `group` alone all templates of a group."""

    name: str | None = None
    group: str | None = None
    storage: str | None = None
    priority: int | None = None


Entries = Annotated[list[UniverseTemplateEntry], _MANY]


class UniverseTemplateInstallation(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    all_of: Entries | None = None
    all_in_groups: Annotated[list[UniverseTemplateEntry | str], _MANY] | None = None
    one_of: Entries | None = None
    one_in_groups: Annotated[list[UniverseTemplateEntry | str], _MANY] | None = None
    on_template_paste_override_present_files: bool | None = None


class UniversePortRange(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    min: int
    max: int


class UniversePort(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    port: int
    protocol: str | None = None
    name: str | None = None


class UniverseConfiguration(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    """A group as a configuration; what is left out, or null, has Universe's default."""

    name: str | None = None
    runtime: str | None = None
    command: Line | None = None
    static: bool | None = None
    ram_mb: int | None = None
    cpu: float | None = None
    instance_groups: Texts | None = None
    nodes: Texts | None = None
    host_address: Line | None = None
    available_ports: UniversePortRange | None = None
    minimum_service_count: int | None = None
    environment_variables: Values | None = None
    template_installation_config: UniverseTemplateInstallation | None = None
    file_modifications: Texts | None = None
    properties: Values | None = None
    additional_ports: Annotated[list[UniversePort], _MANY] | None = None


class ConfigurationDeletion(Confirmed, frozen=True, kw_only=True):
    cascade: Annotated[bool, msgspec.Meta(description="Stop its instances first.")] = False


def _shown(spec: GroupSpec) -> UniverseConfiguration:
    return msgspec.convert(configuration_of(spec), UniverseConfiguration)


async def list_configurations(
    state: ClusterState, call: ApiCall[None, NoQuery]
) -> list[UniverseConfiguration]:
    access = call.caller.access
    return [
        _shown(stored.record.spec)
        for stored in sorted(state.groups, key=lambda each: each.record.spec.name)
        if not stored.record.spec.abstract
        and access.allows_on_group(Permission.GROUPS_READ, stored.record.spec.name)
    ]


async def get_configuration(state: ClusterState, call: ApiCall[None, NoQuery]) -> UniverseConfiguration:
    return _shown(state.groups.require(call.path["name"]).record.spec)


async def put_configuration(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    rates: RequestRates,
    call: ApiCall[UniverseConfiguration, Confirmed],
) -> Describe:
    """A group of this name gets what the configuration says, and keeps what none can say; without one it is created."""
    name, access = call.path["name"], call.caller.access
    refuse_group_outside(access, Permission.GROUPS_MANAGE, name, field="name")  # whether there is one or not
    admit_change(state, rates, call, {})
    stored = state.groups.find(name)
    mapped = _mapped(call, name, stored.record.spec if stored is not None else None)

    def revise(record: GroupRecord, stored: StoredGroups) -> Any:
        return group_changes.patched(configuration_patch(record.spec, mapped))(record, stored)

    async def describe() -> Mutation:
        try:
            stored = state.groups.find(name)
            if stored is None:
                written = dataclasses.replace(call, raw=msgspec.json.encode(new_document(mapped)))
                new = written.with_query(DryRunQuery())
                mutation = await (await create_group(state, instances, workload, rates, new))()
            else:
                permission = Permission.GROUPS_MANAGE
                check_scope(Scoping.GROUP, access, permission, state, call.path)
                present = stored.record.spec
                refuse_references(state, call, configuration_patch(present, mapped), present)
                asked = call.with_query(ConfirmedOrDry(confirm=call.query.confirm))
                mutation = await revision(state, instances, workload, asked, revise)()
        except Rejected as error:
            raise _in_their_terms(error) from None
        return msgspec.structs.replace(mutation, body=_shown(mutation.body), status=200)

    return describe


def _mapped(
    call: ApiCall[UniverseConfiguration, Any], name: str, present: GroupSpec | None
) -> MappedConfiguration:
    """The group that the body describes; INVALID_FIELD names the first field that cannot be taken over. `present`: the
    group as it is."""
    value: dict[str, Any] = msgspec.json.decode(call.raw or b"{}")
    written = call.body.name
    if written is not None and written.lower() != name:
        raise Rejected(
            Code.INVALID_FIELD,
            f"name: the body describes '{written[:80]}', and the path names '{name[:80]}'",
            hint="use one name",
            field="name",
        )
    mapped = map_configuration(_BODY, {**value, "name": name})
    for fault in faults_of(mapped, value):
        if fault.field == "command" and present is not None and keeps_command(present, value):
            continue
        raise Rejected(
            Code.INVALID_FIELD, f"{fault.field}: {fault.message}", hint=fault.hint, field=fault.field
        )
    return mapped


def _in_their_terms(error: Rejected) -> Rejected:
    """A refusal of the group's document that names the field of the configuration."""
    if not error.field or error.code.status not in _OF_FIELDS or type(error) is not Rejected:
        return error
    hint, field = error.hint, origin_of(error.field)
    if error.field == "max":  # of the group: no configuration has one
        hint, field = "raise 'max' of the group first, with PATCH /api/v1/groups/NAME", origin_of("min")
    what = error.message.removeprefix(f"{error.field}: ")
    return Rejected(Code.INVALID_FIELD, f"{field}: {what}", hint=hint, field=field)


def delete_configuration(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[None, ConfigurationDeletion],
) -> Mutation:
    query = Cascade(cascade=call.query.cascade, confirm=call.query.confirm)
    return delete_group(state, instances, workload, call.with_query(query))


_ALL: Final = "/api/configurations"
_ONE: Final = f"{_ALL}/{{name}}"
_NAME: Final = frozenset({"name"})

ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_ALL,
        permission=Permission.GROUPS_READ,
        scope=Scoping.FILTERS,
        summary="List configurations",
        response=list[UniverseConfiguration],
        handler=list_configurations,
    ),
    Read(
        method="GET",
        path=_ONE,
        permission=Permission.GROUPS_READ,
        summary="Show a configuration",
        response=UniverseConfiguration,
        handler=get_configuration,
        lowered=_NAME,
    ),
    Build(
        method="PUT",
        path=_ONE,
        permission=Permission.GROUPS_MANAGE,
        scope=Scoping.FILTERS,
        summary="Write a configuration; what only a group has stays as it is",
        body=UniverseConfiguration,
        query=Confirmed,
        response=UniverseConfiguration,
        handler=put_configuration,
        revises=the_group,
        creates=True,
        turn=writing,
        lowered=_NAME,
    ),
    Mutate(
        method="DELETE",
        path=_ONE,
        permission=Permission.GROUPS_MANAGE,
        summary="Delete a configuration",
        query=ConfigurationDeletion,
        status=204,
        handler=delete_configuration,
        revises=the_group,
        turn=writing,
        lowered=_NAME,
    ),
)
