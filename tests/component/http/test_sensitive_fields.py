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
from sse_client import following

from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.route_table import Route, Stream
from corral.controller.http.resources.audit import AuditShape
from corral.controller.http.resources.dry_runs import FieldChangeShape
from corral.controller.http.resources.events import TicketShape
from corral.controller.http.resources.logs import LogPage, LogShape
from corral.controller.http.routes import ROUTES
from corral.controller.state.collections import (
    CRASHES,
    DEPLOYMENTS,
    GROUPS,
    group_decisions,
    instance_decisions,
)
from corral.controller.state.ledger import UndeclaredEventData, UndeclaredEventField
from corral.domain.access import access_of_role
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.events import Cursor, Draft, Event, EventType, without_data
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.deployments import DeploymentFailure
from corral.domain.groups.group import ArtifactSpec, GroupSpec, PatchSpec
from corral.domain.groups.instance_records import CrashLoop, DecisionRecord, ExitRecord, StartFailure
from corral.domain.ids import DecisionId
from corral.domain.modules.records import ModuleChange, Overridden
from corral.domain.permissions import GRANTS, Role
from corral.domain.sensitive_fields import (
    HIDDEN,
    redacted,
    redacted_document,
    redacted_event,
    shown_to,
    undeclared_fields,
)
from corral.domain.urls import shown_text
from corral.store.port import ABSENT

MARK = "hunter2"
URL = f"http://bob:{MARK}@files.example/server.jar?sig={MARK}#{MARK}"
SHA = "0" * 64
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SENTENCE = f"cannot fetch '{URL}': HTTP 403 (see jdbc:mysql://db.example/x?password={MARK}), gave up"
SHOWN_SENTENCE = (
    "cannot fetch 'http://files.example/server.jar': HTTP 403 (see jdbc:mysql://db.example/x), gave up"
)
EVENTS: dict[EventType, dict[str, Any]] = {
    EventType.MODULE_UPGRADE_ROLLED_BACK: {"steps": ["on_start raised", f"KeyError: {MARK}"], "reason": "x"},
    EventType.NODE_ERROR_REPORTED: {
        "code": "INTERNAL",
        "message": f"ValueError: {MARK}",
        "context": SENTENCE,
    },
    EventType.INSTANCE_CRASHED: {
        "reason": SENTENCE,
        "exit": {
            "known": True,
            "code": 1,
            "signal": None,
            "crashed": True,
            "outcome": "crashed",
            "summary": SENTENCE,
            "rung": f"command login {MARK}",
            "ended_at": "2026-01-01T12:00:00Z",
        },
    },
    EventType.MODULE_LEAKED: {"id": "m", "children": [f"17 sh -c login {MARK}"], "threads": ["worker"]},
    EventType.CRASH_LOOP_STARTED: {"reason": SENTENCE, "pauses": 1},
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
    "maintenance": {"bypass": [MARK]},
    "schedules": [
        {"name": "s", "cron": "0 4 * * *", "duration_seconds": 60, "maintenance": {"bypass": [MARK]}}
    ],
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
        deployed = await admin.post("/api/v1/groups/lobby/deploy", json={})
        assert deployed.status_code == 200, deployed.text
        await plant_failure(rig, deployed.json()["id"], id)
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
            rung=f"command login {MARK}",
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


async def plant_failure(rig: Rig, deployment: str, instance: str) -> None:
    """A failed instance of a deployment, with the last lines of its console."""
    stored = rig.state.deployments.require(deployment)
    failure = DeploymentFailure(
        at=rig.clock.now(),
        instance=instance,
        incarnation=1,
        node="node-1",
        code="CRASHED",
        reason=SENTENCE,
        lines=(f"password is {MARK}",),
    )
    failed = msgspec.structs.replace(stored.record, failures=(failure,), waiting=SENTENCE, outcome=SENTENCE)
    await rig.ledger.commit(DEPLOYMENTS.put(deployment, failed, expect=stored.revision))


async def plant_sentences(rig: Rig, id: str) -> None:
    """What programs and nodes say, wherever it is shown."""
    failure = StartFailure(stage="DOWNLOAD", code="DOWNLOAD_FAILED", message=SENTENCE, permanent=False)
    state = rig.state.instances.require(id).record.state
    await rig.report(id, state=state, reason=SENTENCE, start_failure=failure)
    group = rig.state.groups.require("lobby")
    now = rig.clock.now()
    pause = CrashLoop(since=now, until=now, pauses=1, reason=SENTENCE)
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


def addressed(rig: Rig, route: Route, id: str) -> list[str]:
    """A route's address for everything that was planted."""
    names = {"{name}": "lobby", "{platform}": "paper", "{version}": "1.0", "{path}": "x", "{group}": "g"}
    names["{number}"] = "1"
    kind = route.path.removeprefix("/api/v1/").partition("/")[0]
    deployment = next(name for name, _ in rig.state.deployments.items())
    names["{id}"] = {"nodes": "node-1", "crashes": f"{id}.1", "deployments": deployment}.get(kind, id)
    path = route.path
    for name, value in names.items():
        path = path.replace(name, value)
    if path == "/api/v1/decisions":
        return [f"{path}?subject=instance/{id}", f"{path}?subject=group/lobby"]
    if path == "/api/v1/logs":
        return [f"{path}?source=controller", f"{path}?source=node:node-1"]
    return [path, f"{path}?newest=true"] if path == "/api/v1/events" else [path]


async def everything(rig: Rig, client: httpx.AsyncClient, role: Role, id: str) -> dict[str, str]:
    found: dict[str, str] = {}
    absent: set[str] = set()
    for route in readable(role):
        if isinstance(route, Stream):
            continue
        for path in addressed(rig, route, id):
            answer = await client.get(path)
            assert answer.status_code < 500, (path, answer.text)
            found[path] = answer.text
            if answer.status_code == 404:
                absent.add(path)
    assert not {
        path for path in absent if not re.search("/modules/|/templates/g/|/files/x|/api/cluster/nodes/", path)
    }
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
    assert told["MODULE_UPGRADE_ROLLED_BACK"]["steps"] == [HIDDEN, HIDDEN]
    crashed = EVENTS[EventType.INSTANCE_CRASHED]["exit"]
    assert told["INSTANCE_CRASHED"]["exit"] == {**crashed, "summary": SHOWN_SENTENCE, "rung": HIDDEN}
    assert told["MODULE_LEAKED"]["children"] == [HIDDEN]
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
    free = {"module": "m", "data": {"reason": URL}}
    of_module = msgspec.structs.replace(event, type=EventType.MODULE_EVENT, data=free)
    assert redacted_event(of_module) is of_module
    omitted = without_data(event, "too deep")
    assert redacted_event(omitted) is omitted


class NobodyListedThis(msgspec.Struct, frozen=True):
    name: str
    count: int
    inner: tuple[ArtifactSpec, ...] = ()


class GroupWithMore(GroupSpec, frozen=True, kw_only=True):
    more: str = ""


@pytest.mark.trap("T91")
def test_a_field_without_a_class_is_hidden_from_whoever_may_not_see_all() -> None:
    found = NobodyListedThis(name=MARK, count=3, inner=(ArtifactSpec(url=URL, sha256=SHA),))
    assert MARK not in str(msgspec.to_builtins(redacted(found)))
    shown = redacted(Page(items=[GroupWithMore(name="g", more=MARK)], next=None))
    assert (shown.items[0].name, shown.items[0].more) == ("g", HIDDEN)
    assert shown_to(access_of_role(Role.OPERATOR), found) is found
    assert shown_to(access_of_role(Role.VIEWER), found) == redacted(found)
    draft = Draft(type=EventType.GROUP_CREATED, subject="g", data={"min": 1, "secret": {"a": MARK}})
    assert undeclared_fields(draft) == ["secret"]
    event = Event(cursor=Cursor(1, 1), type=draft.type, subject="g", at=NOW, data=draft.data)
    assert redacted_event(event).data == {"min": 1, "secret": {"a": HIDDEN}}
    document = {"name": MARK, "count": 3, "inner": [{"url": URL}], "unknown": MARK}
    assert MARK not in str(redacted_document(document, NobodyListedThis))
    assert redacted_document({"name": "g", "more": MARK}, GroupWithMore) == {"name": "g", "more": HIDDEN}


async def test_an_event_with_undeclared_data_is_reported_when_it_is_committed(rig: Rig) -> None:
    draft = Draft(type=EventType.GROUP_CREATED, subject="g", data={"secret": 1})
    with pytest.raises(UndeclaredEventField, match=r"GROUP_CREATED\.secret"):
        await rig.ledger.commit(draft)


async def test_an_event_whose_data_differs_from_its_schema_is_reported_and_stored_all_the_same(
    rig: Rig,
) -> None:
    draft = Draft(type=EventType.GROUP_CREATED, subject="g", data={"min": "one"})
    with pytest.warns(UndeclaredEventData, match=r"GROUP_CREATED: .* got `str` - at `\$\.min`"):
        commit = await rig.ledger.commit(draft)
    assert [event.subject for event in commit.events] == ["g"]


def test_of_a_log_record_only_what_is_listed_is_shown_to_whoever_may_not_see_all() -> None:
    fields = {
        "instance": "lobby-1",
        "reason": SENTENCE,
        "rung": f"command {MARK}",
        "address": MARK,
        "free": MARK,
    }
    record = LogShape(
        number=1,
        at=NOW,
        level="INFO",
        logger="module:m",
        message=SENTENCE,
        thread="",
        throwable=f"ValueError: {MARK}",
        fields=fields,
        dropped_before=0,
    )
    shown = redacted(LogPage(items=[record], next=None)).items[0]
    assert (shown.message, shown.throwable) == (SHOWN_SENTENCE, HIDDEN)
    assert shown.fields == {
        "instance": "lobby-1",
        "reason": SHOWN_SENTENCE,
        "rung": HIDDEN,
        "address": HIDDEN,
        "free": HIDDEN,
    }


def test_a_secret_that_is_shown_once_reaches_the_caller_that_made_it() -> None:
    ticket = TicketShape(ticket="t-1", expires_at=NOW)
    assert redacted(ticket) is ticket


def test_the_audit_shows_neither_values_nor_addresses_to_whoever_may_not_see_all() -> None:
    entry = AuditShape(
        number=1,
        at=NOW,
        actor="token:1",
        actor_name="ann",
        action="groups.update",
        subject="lobby",
        address="192.0.2.7",
        before={"env": {"A": MARK}},
        after=None,
        request="r-1",
        outcome="",
        attempt="",
    )
    shown = redacted(entry)
    assert (shown.actor_name, shown.address, shown.before) == ("ann", HIDDEN, {"env": {"A": HIDDEN}})
