"""Every field that a caller, a stream or a log can show has a class, and nothing else has one."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from corral.controller.http.openapi import describe, shown_structs
from corral.controller.http.pipeline.route_table import PUBLIC
from corral.controller.http.routes import ROUTES
from corral.domain.events import EventType
from corral.domain.field_classes.cluster_schemas import CLUSTER_SCHEMAS
from corral.domain.field_classes.event_data import (
    EVENT_DATA,
    EVENT_DOCUMENTS,
    EVENT_PERMISSIONS,
    NEVER_ON_NODES,
)
from corral.domain.field_classes.field_class import FieldClass, fields
from corral.domain.field_classes.group_schemas import GROUP_SCHEMAS
from corral.domain.field_classes.log_fields import LOG_FIELDS
from corral.domain.sensitive_fields import SCHEMAS, field_classes

ROOMS = pathlib.Path(__file__).resolve().parents[3] / "src" / "corral"
SCHEMA_HINT = "give it a class in src/corral/domain/field_classes/{group,cluster}_schemas.py"
UNTYPED = {
    "GET /api/v1/groups/{name}/document": "redacted by its handler, as a GroupSpec",
    "GET /api/node/config": "secrets are taken out before the API gets it, and administrators alone read it",
    "GET /api/v1/schemas/group": "describes GroupSpec and holds no values",
}
"""Routes whose answer has no schema, and why nothing of it is shown by accident."""


SHOWN = shown_structs(ROUTES)


@pytest.mark.trap("T91")
def test_every_field_of_every_answer_has_a_class() -> None:
    assert len(SHOWN) > 120
    missing = {
        f"{kind.__name__}.{name}"
        for kind in SHOWN
        for name in kind.__struct_fields__
        if name not in field_classes(kind)
    }
    assert missing == set(), SCHEMA_HINT


def test_no_class_is_left_of_a_field_or_a_schema_that_is_gone() -> None:
    by_name = {base.__name__: base for kind in SHOWN for base in kind.__mro__ if base in SHOWN}
    assert set(SCHEMAS) - set(by_name) == set()
    gone = {
        f"{name}.{field}"
        for name, row in SCHEMAS.items()
        for field in row
        if field not in by_name[name].__struct_fields__
    }
    assert gone == set()


def test_no_two_schemas_share_a_name_and_no_schema_has_two_rows() -> None:
    names = [kind.__name__ for kind in SHOWN]
    assert sorted(names) == sorted(set(names)), "classes are found by the name of the schema"
    assert GROUP_SCHEMAS.keys() & CLUSTER_SCHEMAS.keys() == set()
    with pytest.raises(ValueError, match="'a' has two classes"):
        fields(open="a b", sensitive="a")


def test_no_answer_is_without_a_schema_unless_it_is_known_to_be_harmless() -> None:
    def untyped(kind: Any) -> bool:
        info = inspect.type_info(kind)
        return isinstance(info, inspect.DictType | inspect.AnyType)

    found = {route.name for route in ROUTES if route.response is not None and untyped(route.response)}
    assert found == set(UNTYPED)


SECRETS = re.compile(
    r"(.*_)?(token|password|secret|secrets|digest|private_key|key|credential|ticket|code|cookie|csrf)(_pem)?"
)
"""Names of fields that hold secrets somewhere."""
NO_SECRETS = {
    "CacheTrouble.code": "of an error",
    "CommandError.code": "of an error",
    "CommandOutput.exit_code": "of a process",
    "DeploymentFailure.code": "of an error",
    "StartFailure.code": "of an error",
    "SyncAnswer.code": "of an error",
    "Alternative.code": "of a refusal",
    "DocumentError.code": "of an error",
    "ErrorDetail.code": "of an error",
    "Finding.code": "of an error",
    "ExitShape.code": "of an exit",
    "ExitRecord.code": "of an exit",
    "FileShape.digest": "of a file's content",
    "InstanceFileShape.digest": "of a file's content",
    "InstanceFileChangeShape.digest": "of a file's content",
    "FileOriginShape.digest": "of a file's content",
    "ErrorDetail.digest": "of a file's content",
    "MeShape.token": "the token's record, without its text",
    "DeviceLoginShape.user_code": "opens nothing by itself: somebody who has logged in approves it",
    "WaitingLoginShape.user_code": "the same",
    "MeShape.must_change_password": "whether it has to be changed",
    "UserShape.has_password": "whether there is one",
    "UserShape.must_change_password": "whether it has to be changed",
}
SHOWN_ONCE = {
    "DeviceLoginShape.device_code",
    "LoginShape.csrf",
    "LoginShape.token",
    "RecoveryCodesShape.codes",
    "TotpSetupShape.secret",
    "TotpSetupShape.setup",
    "TotpSetupShape.uri",
    "NewJoinTokenShape.command",
    "NewJoinTokenShape.token",
    "NewTokenShape.token",
    "TicketShape.ticket",
    "WorkloadTokenShape.token",
}
"""The only secrets in answers: each is told to the caller that made it, and never again."""


@pytest.mark.trap("T91")
def test_no_answer_has_a_secret_but_those_that_are_shown_once() -> None:
    of_class = {
        kind: {
            f"{struct.__name__}.{name}"
            for struct in SHOWN
            for name, found in field_classes(struct).items()
            if found is kind
        }
        for kind in (FieldClass.SECRET, FieldClass.SHOWN_ONCE)
    }
    assert of_class == {FieldClass.SECRET: set(), FieldClass.SHOWN_ONCE: SHOWN_ONCE}
    made_by = {route.response: route for route in ROUTES if route.response is not None}
    for name in {each.partition(".")[0] for each in SHOWN_ONCE}:
        routes = [route for kind, route in made_by.items() if getattr(kind, "__name__", "") == name]
        assert [route.method for route in routes] == ["POST"], name
    sounding = {
        f"{struct.__name__}.{name}"
        for struct in SHOWN
        for name in struct.__struct_fields__
        if SECRETS.fullmatch(name)
    }
    assert sounding - SHOWN_ONCE - set(NO_SECRETS) == set(), "is it a secret? If not, say what it is"


def test_answers_to_callers_without_credentials_are_open() -> None:
    for route in ROUTES:
        if route.permission is PUBLIC and route.response is not None:
            for kind in shown_structs([route]) - shown_structs([]):
                assert set(field_classes(kind).values()) <= {FieldClass.OPEN, FieldClass.SHOWN_ONCE}, kind


@pytest.mark.trap("T91")
def test_every_event_type_has_its_data_declared_and_holds_no_secret() -> None:
    assert set(EVENT_DATA) == set(EventType), "declare it in src/corral/domain/field_classes/event_data.py"
    for type, row in EVENT_DATA.items():
        assert not {FieldClass.SECRET, FieldClass.SHOWN_ONCE} & set(row.values()), type
        documents = {name for name, kind in row.items() if kind is FieldClass.DOCUMENT}
        assert documents <= set(EVENT_DOCUMENTS), type
    assert set(EVENT_DOCUMENTS.values()) <= set(SCHEMAS)


ACCOUNTS = re.compile(r"(JOIN_)?TOKEN_|(USER|ROLE|BINDING|SESSION|LOGIN|PASSWORD|TOTP|OIDC|ACCOUNT)_")


def test_events_about_accounts_need_a_permission_of_their_own_and_never_go_to_nodes() -> None:
    about = {type for type in EventType if ACCOUNTS.match(type)}
    assert about <= set(EVENT_PERMISSIONS), "add it to EVENT_PERMISSIONS"
    assert {*about, EventType.INSTANCE_COMMAND} <= NEVER_ON_NODES


METHODS = ("debug", "info", "warning", "error", "exception", "critical")
NOT_SHOWN = {"exc_info"}
SPREAD = {
    "_ids(target)": {"instance", "incarnation", "node"},
    "lost.data": {"stored", "confirmed"},
    "msgspec.structs.asdict(result)": {"former", "owner", "changed", "left"},
    "self._dump()": {"file", "tasks"},
    "phases": set(),
    "untold": set(),
}
"""Fields that a record has by `**`. The last two have names of their own, which are hidden."""
BOUND = {"request", "decision", "instance", "node", "module"}
"""See `corral.system.log_context`."""


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(ROOMS.rglob("*.py")):
        source = path.read_text()
        if re.search(r"\b_?log\s*\.", source) is None:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in METHODS and ast.unparse(node.func.value).rpartition(".")[2] in (
                "_log",
                "log",
            ):
                yield f"{path.relative_to(ROOMS).as_posix()}:{node.lineno}", node


def test_every_field_of_a_log_record_has_a_class() -> None:
    used, spread = set(BOUND), set()
    for where, call in log_calls():
        for keyword in call.keywords:
            if keyword.arg is None:
                spread.add(ast.unparse(keyword.value))
            else:
                assert keyword.arg in LOG_FIELDS or keyword.arg in NOT_SHOWN, (where, keyword.arg)
                used.add(keyword.arg)
    assert spread == set(SPREAD)
    for names in SPREAD.values():
        assert names <= set(LOG_FIELDS), names
        used |= names
    assert set(LOG_FIELDS) - used == set(), "no record has such a field"


def test_no_log_record_has_a_secret() -> None:
    assert not {FieldClass.SECRET, FieldClass.SHOWN_ONCE} & set(LOG_FIELDS.values())
    sounding = {name for name in LOG_FIELDS if SECRETS.fullmatch(name)}
    assert sounding == {"code", "digest", "key"}  # of an error, of a content, of an entry of a cache


def test_the_description_of_the_api_shows_the_class_of_each_field_of_an_answer() -> None:
    schemas = describe(ROUTES).components["schemas"]
    assert schemas["GroupShape"]["properties"]["env"]["x-class"] == "sensitive"
    assert schemas["GroupShape"]["properties"]["name"]["x-class"] == "open"
    assert schemas["ArtifactSpec"]["properties"]["url"]["x-class"] == "sensitive"
    assert schemas["NewTokenShape"]["properties"]["token"]["x-class"] == "secret"


def test_every_event_about_an_instance_says_whose_it_is_and_where() -> None:
    """Else nobody with a scope gets it: scopes are asked by group and node."""
    about = [type for type in EventType if type.startswith("INSTANCE_")]
    assert [type for type in about if not {"group", "node"} <= set(EVENT_DATA[type])] == []
    deployments = [type for type in EventType if type.startswith("DEPLOYMENT_")]
    assert [type for type in deployments if "group" not in EVENT_DATA[type]] == []
