"""What a role may not see in one place it does not find in another: every route is walked with marks planted."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig
from msgspec import inspect
from sse_client import following

from corral.controller.http.pipeline.route_table import Route, Stream
from corral.controller.http.resources.dry_runs import FieldChangeShape
from corral.controller.http.routes import ROUTES
from corral.controller.state.collections import CRASHES, GROUPS, group_decisions, instance_decisions
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.events import Cursor, Draft, Event, EventType
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.group import GroupSpec, PatchSpec
from corral.domain.groups.instance_records import CrashLoop, DecisionRecord, ExitRecord, StartFailure
from corral.domain.ids import DecisionId
from corral.domain.modules.records import ModuleChange, Overridden
from corral.domain.permissions import GRANTS, Permission, Role
from corral.domain.sensitive_fields import (
    EVENT_FIELDS,
    EVENT_PERMISSIONS,
    FIELDS,
    HIDDEN,
    TEXT_FIELDS,
    redacted,
    redacted_event,
)
from corral.domain.urls import shown_text
from corral.store.port import ABSENT

MARK = "hunter2"
URL = f"http://bob:{MARK}@files.example/server.jar?sig={MARK}#{MARK}"
SHA = "0" * 64
SENTENCE = f"cannot fetch '{URL}': HTTP 403 (see jdbc:mysql://db.example/x?password={MARK}), gave up"
SHOWN_SENTENCE = (
    "cannot fetch 'http://files.example/server.jar': HTTP 403 (see jdbc:mysql://db.example/x), gave up"
)
EVENTS: dict[EventType, dict[str, Any]] = {
    EventType.MODULE_UPGRADE_ROLLED_BACK: {"story": ["on_start raised", f"KeyError: {MARK}"], "reason": "x"},
    EventType.NODE_ERROR_REPORTED: {
        "code": "INTERNAL",
        "message": f"ValueError: {MARK}",
        "context": SENTENCE,
    },
    EventType.INSTANCE_CRASHED: {"reason": SENTENCE, "exit": {"code": 1, "summary": SENTENCE}},
    EventType.CRASH_LOOP_STARTED: {"reason": SENTENCE, "strikes": 1},
}

GROUP: dict[str, Any] = {
    "command": ["server", f"--password={MARK}"],
    "args": [MARK],
    "env": {"DB_PASSWORD": MARK},
    "variables": {"RCON": MARK},
    "variable_types": {"OTHER": {"default": MARK}},
    "properties": {"motd": MARK},
    "patches": [{"file": "server.properties", "path": "rcon.password", "value": MARK}],
    "artifact": {"url": URL, "sha256": SHA, "file": "server.jar"},
    "extensions": [{"id": "plugin", "install_path": "plugins", "artifact": {"url": URL, "sha256": SHA}}],
    "probes": [
        {"kind": "command", "command": ["probe", MARK]},
        {"kind": "http", "port": "primary", "path": f"/health?key={MARK}"},
    ],
    "ports": {"primary": {"range": [30000, 30010]}},
    "stop": [{"command": f"login {MARK}", "wait_seconds": 1}],
}


async def plant(rig: Rig) -> str:
    """Marks wherever a caller can put something that others should not read; the id of the instance."""
    async with rig.client() as admin:
        await admin.put("/api/v1/catalog/paper/1.0", json={"url": URL, "sha256": SHA, "file": "server.jar"})
        await rig.template("lobby")
        for value in ("first", MARK):
            settings = {
                "settings": {"variables": {"RCON": value}, "variable_types": {"X": {"default": MARK}}}
            }
            answer = await admin.patch("/api/v1/templates/lobby", json=settings)
            assert answer.status_code == 200, answer.text
        await rig.online()
        await rig.group("lobby", **GROUP)
        await rig.group("java", command=[], jvm={"jar": "server.jar", "args": [f"-Dpassword={MARK}"]})
        started = await admin.post(
            "/api/v1/instances", json={"group": "lobby", "node": "node-1", "variables": {"MORE": MARK}}
        )
        assert started.status_code == 201, started.text
        id: str = started.json()["id"]
        change = ModuleChange(
            module="flags",
            jvm_args_added=(f"-Dkey={MARK}",),
            args_added=(MARK,),
            overridden=(Overridden(kind="jvm_args", name=f"-Dkey={MARK}"),),
        )
        await rig.instance("lobby", module_changes=(change,))
        await rig.report(id, state=rig.state.instances.require(id).record.state, module_changes=(change,))
        await plant_sentences(rig, id)
        await rig.token(Role.OPERATOR)
        patched = await admin.patch("/api/v1/groups/lobby", json={"env": {"NEW": MARK}})
        assert patched.status_code == 200
    line = Draft(type=EventType.INSTANCE_COMMAND, subject=id, data={"line": f"login {MARK}", "by": "x"})
    now = rig.clock.now()
    crash = CrashRecord(
        id=f"{id}.1",
        instance=id,
        incarnation=1,
        group="lobby",
        node="node-1",
        at=now,
        exit=ExitRecord(
            known=True,
            code=1,
            signal=None,
            crashed=True,
            summary=f"exit code 1: {SENTENCE}",
            outcome="",
            crash_class="EXIT",
            ended_at=now,
        ),
        crash_class="EXIT",
        signature=SENTENCE,
        uptime_ms=1,
        tail=(MARK,),
    )
    events = [Draft(type=type, subject=id, data=data) for type, data in EVENTS.items()]
    await rig.ledger.commit(*events, line, CRASHES.put(crash.id, crash, expect=ABSENT))
    return id


async def plant_sentences(rig: Rig, id: str) -> None:
    """What programs and nodes say, wherever it is shown."""
    failure = StartFailure(stage="DOWNLOAD", code="DOWNLOAD_FAILED", message=SENTENCE, permanent=False)
    state = rig.state.instances.require(id).record.state
    await rig.report(id, state=state, reason=SENTENCE, start_failure=failure)
    group = rig.state.groups.require("lobby")
    now = rig.clock.now()
    pause = CrashLoop(since=now, until=now, strikes=1, reason=SENTENCE)
    decision = DecisionRecord(
        id=DecisionId("dec-1"),
        cause=SENTENCE,
        root=SENTENCE,
        causes=(SENTENCE,),
        kind=DecisionKind.SKIP,
        subject=id,
        reason=SENTENCE,
        epoch=1,
        at=now,
        inputs={"answer": SENTENCE, "count": 3},
        rejected=(Alternative(subject="node-1", reason=SENTENCE),),
    )
    paused = msgspec.structs.replace(group.record, reason=SENTENCE, paused=pause)
    journals = [journal.append(decision) for journal in (instance_decisions(id), group_decisions("lobby"))]
    await rig.ledger.commit(GROUPS.put("lobby", paused, expect=group.revision), *journals)


def readable(role: Role) -> list[Route]:
    return [each for each in ROUTES if each.method == "GET" and each.permission in GRANTS[role]]


def addressed(route: Route, id: str) -> list[str]:
    """A route's address for everything that was planted."""
    names = {"{name}": "lobby", "{platform}": "paper", "{version}": "1.0", "{path}": "x", "{group}": "g"}
    names["{id}"] = "node-1" if "/nodes/" in route.path else f"{id}.1" if "/crashes/" in route.path else id
    path = route.path
    for name, value in names.items():
        path = path.replace(name, value)
    if path == "/api/v1/decisions":
        return [f"{path}?subject=instance/{id}", f"{path}?subject=group/lobby"]
    return [path, f"{path}?newest=true"] if path == "/api/v1/events" else [path]


async def everything(rig: Rig, client: httpx.AsyncClient, role: Role, id: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for route in readable(role):
        if isinstance(route, Stream):
            continue
        for path in addressed(route, id):
            answer = await client.get(path)
            assert answer.status_code < 500, (path, answer.text)
            found[path] = answer.text
    async with following(client, params={"after": "0-0"}) as stream:
        frames = []
        while not frames or frames[-1]["id"] != str(rig.hub.head):
            frame = await stream.event()
            assert frame.data is not None
            frames.append(frame.data)
            if frame.data["type"] == "INSTANCE_COMMAND":
                break  # nothing was planted after it
        found["stream"] = json.dumps(frames)
    return found


@pytest.mark.trap("T91")
async def test_a_viewer_finds_no_command_credential_or_value_in_any_answer(rig: Rig) -> None:
    id = await plant(rig)
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        found = await everything(rig, viewer, Role.VIEWER, id)
        assert [path for path, text in found.items() if MARK in text] == []
        group = (await viewer.get("/api/v1/groups/lobby")).json()
        plan = (await viewer.get(f"/api/v1/instances/{id}/plan")).json()["plan"]
    # That something is hidden is seen, and what is not sensitive stays.
    assert group["env"]["NEW"] == plan["env"]["DB_PASSWORD"] == HIDDEN
    assert group["command"] == [HIDDEN, HIDDEN]
    assert group["artifact"]["url"] == plan["artifact"]["url"] == "http://files.example/server.jar"
    assert group["patches"][0]["path"] == "rcon.password"
    assert HIDDEN in found["/api/v1/templates/lobby/-/diff"]
    frames = json.loads(found["stream"])
    assert HIDDEN in frames[-1]["data"]["line"]
    told = {frame["type"]: frame["data"] for frame in frames}
    assert told["MODULE_UPGRADE_ROLLED_BACK"]["story"] == [HIDDEN, HIDDEN]
    assert told["INSTANCE_CRASHED"]["exit"] == {"code": 1, "summary": SHOWN_SENTENCE}
    for path in (f"/api/v1/instances/{id}", f"/api/v1/instances/{id}/why", "/api/v1/groups/lobby/why"):
        assert SHOWN_SENTENCE in found[path], path
    assert (
        "TOKEN_CREATED" not in found["stream"] + found["/api/v1/events"] + found["/api/v1/events?newest=true"]
    )


@pytest.mark.trap("T91")
async def test_an_operator_sees_what_he_writes_and_no_tokens(rig: Rig) -> None:
    id = await plant(rig)
    _, token = await rig.token(Role.OPERATOR)
    async with rig.client(token) as operator:
        found = await everything(rig, operator, Role.OPERATOR, id)
        asked = await operator.get("/api/v1/events", params={"types": "TOKEN_CREATED"})
    for path in (
        "/api/v1/templates/lobby",
        "/api/v1/templates/lobby/-/diff",
        "/api/v1/templates/lobby/-/versions",
        "/api/v1/groups/lobby",
        f"/api/v1/instances/{id}/plan",
        "/api/v1/catalog/paper/1.0",
        "stream",
    ):
        assert MARK in found[path], path
    assert (
        "TOKEN_CREATED" not in found["stream"] + found["/api/v1/events"] + found["/api/v1/events?newest=true"]
    )
    assert (asked.status_code, asked.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert "tokens.read" in asked.json()["error"]["message"]


@pytest.mark.trap("T91")
async def test_a_viewer_gets_no_differences_and_documents_without_credentials(rig: Rig) -> None:
    await rig.group("lobby", **GROUP)
    _, token = await rig.token(Role.VIEWER)
    patch = {"env": {"DB_PASSWORD": "new"}}
    set_of_one = {"documents": [{"body": {"name": "lobby", **patch}}], "dry_run": True, "force": True}
    async with rig.client(token) as viewer, rig.client() as admin:
        for answer in (
            await viewer.post("/api/v1/apply", json=set_of_one),
            await viewer.patch("/api/v1/groups/lobby?dry_run=true", json=patch),
            await viewer.put("/api/v1/groups/lobby/document?dry_run=true", json=patch),
        ):
            assert (answer.status_code, MARK in answer.text) == (403, False)
        document = (await viewer.get("/api/v1/groups/lobby/document")).text
        assert (MARK in document, "http://files.example/server.jar" in document) == (False, True)
        assert MARK in (await admin.get("/api/v1/groups/lobby/document")).text
        changes = (await admin.patch("/api/v1/groups/lobby?dry_run=true", json=patch)).json()["changes"]
    shape = msgspec.convert(changes[0]["fields"][0], FieldChangeShape)
    assert MARK in str(shape.before)
    hidden = redacted(shape)
    assert (hidden.before, hidden.after) == ({"DB_PASSWORD": HIDDEN}, {"DB_PASSWORD": HIDDEN})


async def test_a_document_with_hidden_values_is_not_written_back(rig: Rig, client: httpx.AsyncClient) -> None:
    await rig.group("lobby", env={"DB_PASSWORD": MARK})
    answer = await client.patch("/api/v1/groups/lobby", json={"env": {"DB_PASSWORD": HIDDEN}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_FIELD")
    assert (await client.get("/api/v1/groups/lobby")).json()["env"] == {"DB_PASSWORD": MARK}
    await rig.template("lobby")
    settings = {"settings": {"variables": {"RCON": HIDDEN}}}
    answer = await client.patch("/api/v1/templates/lobby", json=settings)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_FIELD")


TELLING = re.compile(
    r"env|variables|properties|command|(jvm_)?args(_.*)?|url|line|value|default|old|new|before|after"
)
"""Names of fields that hold what people type, or pass on to programs."""
OPEN = {
    "FrontendShape.url": "where a module's page is served, by this controller",
    "GroupDriftShape.command": "a command of ours, made of the name of the group",
}


def shown_types(info: inspect.Type, seen: dict[str, inspect.StructType]) -> None:
    """Every structure that an answer may hold."""
    if isinstance(info, inspect.StructType) and info.cls.__qualname__ not in seen:
        seen[info.cls.__qualname__] = info
        for field in info.fields:
            shown_types(field.type, seen)
    for part in ("type", "item_type", "value_type", "key_type"):
        inner = getattr(info, part, None)
        if isinstance(inner, inspect.Type):
            shown_types(inner, seen)
    for inner in (*getattr(info, "types", ()), *getattr(info, "item_types", ())):
        shown_types(inner, seen)


def test_no_field_that_a_viewer_gets_was_forgotten_in_the_table() -> None:
    seen: dict[str, inspect.StructType] = {}
    for route in readable(Role.VIEWER):
        if route.response is not None:
            shown_types(inspect.type_info(route.response), seen)
    telling = {
        f"{name}.{field.name}"
        for name, info in seen.items()
        for field in info.fields
        if TELLING.fullmatch(field.name)
        and not any(field.name in FIELDS.get(base.__name__, {}) for base in info.cls.__mro__)
    }
    assert len(seen) > 40
    assert telling == set(OPEN)


def subtypes(kind: type) -> set[type]:
    return {each for sub in kind.__subclasses__() for each in {sub, *subtypes(sub)}}


def test_every_row_of_the_table_names_a_field_that_exists() -> None:
    shapes = {kind.__name__: kind for kind in subtypes(msgspec.Struct)}
    for name, rules in FIELDS.items():
        assert set(rules) <= set(shapes[name].__struct_fields__), name  # type: ignore[attr-defined]


def test_whoever_may_change_something_sees_what_he_changes() -> None:
    """Answers to changes are not redacted: no role may have the one without the other."""
    reading = {Permission(each) for each in GRANTS[Role.VIEWER]}
    for role, granted in GRANTS.items():
        assert Permission.INSTANCES_SENSITIVE in granted or granted <= reading, role


def test_what_is_hidden_keeps_its_form_and_nothing_stays_nothing() -> None:
    patches = tuple(
        PatchSpec(file="a", path="b", value=each) for each in (0, False, 1.5, ["x", {"y": 1}], "", None)
    )
    shown = redacted(GroupSpec(name="g", command=("a", "b"), env={"A": "x", "B": ""}, patches=patches))
    assert (shown.command, shown.args, shown.env) == ((HIDDEN, HIDDEN), (), {"A": HIDDEN, "B": ""})
    values = [patch.value for patch in shown.patches]
    assert values == [HIDDEN, HIDDEN, HIDDEN, [HIDDEN, {"y": HIDDEN}], "", None]
    plain = GroupSpec(name="g", command=())
    assert redacted(plain).env is plain.env


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no address: a/b?c=d", "no address: a/b?c=d"),
        ("GET https://files.example/a/b.jar: 404", "GET https://files.example/a/b.jar: 404"),
        ("at https://registry.example/@scope/pkg.", "at https://registry.example/@scope/pkg."),
        (f"at https://h.example:8443/@scope?x={MARK}", "at https://h.example:8443/@scope"),
        (f"postgres://bob:{MARK}@db.example:5432/x", "postgres://db.example:5432/x"),
        (f"postgres://bob:a/{MARK}@db.example/x", "postgres://db.example/x"),
        (f"redis://:a@{MARK}@db.example", "redis://db.example"),
        (f"(http://h.example/x#{MARK}), http://a:{MARK}@b", "(http://h.example/x), http://b"),
        (f"http://proxy/http://a:{MARK}@b/x,http://c:{MARK}@d", "http://proxy/http://b/x,http://d"),
        ("://" * 3, "://" * 3),
    ],
)
def test_addresses_in_sentences_are_shown_without_what_is_secret(text: str, shown: str) -> None:
    assert shown_text(text) == shown


def test_what_holds_no_secret_is_not_made_anew() -> None:
    event = Event(
        cursor=Cursor(1, 1),
        type=EventType.INSTANCE_CRASHED,
        subject="a-1",
        at=dt.datetime.now(dt.UTC),
        data={"reason": "exit code 1", "exit": {"code": 1, "summary": "exit code 1"}},
    )
    assert redacted_event(event) is event
    free = {"reason": URL}
    of_module = msgspec.structs.replace(event, type=EventType.MODULE_EVENT, data=free)
    assert redacted_event(of_module) is of_module


SENTENCES = re.compile(r".*reason|message|summary|detail|error|why|dropped|signature|hint")
"""Names of fields that hold sentences, in which programs and nodes have a say."""


def test_no_sentence_that_a_viewer_gets_was_forgotten() -> None:
    seen: dict[str, inspect.StructType] = {}
    for route in readable(Role.VIEWER):
        if route.response is not None:
            shown_types(inspect.type_info(route.response), seen)
    forgotten = {
        f"{name}.{field.name}"
        for name, info in seen.items()
        for field in info.fields
        if SENTENCES.fullmatch(field.name)
        and field.name not in TEXT_FIELDS
        and not any(field.name in FIELDS.get(base.__name__, {}) for base in info.cls.__mro__)
    }
    assert forgotten == {"ModuleShape.signature"}  # who signed it


def test_events_are_redacted_by_type_and_tokens_need_a_permission() -> None:
    assert set(EVENT_FIELDS[EventType.INSTANCE_COMMAND]) == {"line"}
    assert set(EVENT_FIELDS[EventType.MODULE_UPGRADE_ROLLED_BACK]) == {"story"}
    assert all(type in EVENT_PERMISSIONS for type in EventType if "TOKEN" in type)
    shown = redacted_event(
        Event(
            cursor=Cursor(1, 1),
            type=EventType.INSTANCE_COMMAND,
            subject="a-1",
            at=dt.datetime.now(dt.UTC),
            data={"line": MARK, "by": "token:1"},
        )
    )
    assert shown.data == {"line": HIDDEN, "by": "token:1"}
