"""The callers of the matrix, and the cluster that they meet: two groups on two nodes, and one that has a node to itself."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Any

from browsers import CSRF, cookie_of, log_in, make_user
from http_rig import Rig
from module_archives import module_zip
from module_source import ROUTED
from route_matrix import ANY, Granted, MatrixCaller, Named, World
from test_api_workload import token_of
from test_instances import crash_of

from corral.controller.state.collections import CRASHES
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import GRANTS, OF_EVERY_TOKEN, Permission, Role
from corral.store.port import ABSENT

PLACES = {"lobby": ("node-1", "node-2"), "arena": ("node-1", "node-2"), "lobby-own": ("node-3",)}
"""Groups, and the nodes with an instance of each; the last one may be nowhere else."""
NODES = ("node-1", "node-2", "node-3")
EVIL = "http://evil.example.org"
FEW = (Permission.GROUPS_READ, Permission.INSTANCES_READ, Permission.NODES_READ, Permission.INSTANCES_COMMAND)
MODULE_ROUTES: dict[str, tuple[tuple[str, Permission | None], ...]] = {
    "GET": (("echo/x", Permission.MODULES_READ), ("admins", Permission.TOKENS_MANAGE)),
    "POST": (("points", Permission.MODULES_USE),),
    "PUT": (("raw", Permission.MODULES_USE),),
    "DELETE": (("echo/x", Permission.NODES_MANAGE),),
    "PATCH": (("echo/x", None),),
}


async def build_world(rig: Rig) -> World:
    for node in NODES:
        await rig.online(node)
    instances, crashes, deployments, groups = [], [], [], []
    for group, places in PLACES.items():
        own = len(places) == 1
        await rig.group(group, min=0, nodes=list(places) if own else [])
        parts = tuple((group, node) for node in (places if own else (*places, ANY)))
        for node in places:
            record = await rig.instance(group, node=node)
            instances.append(Named(record.id, group, node))
            crash = crash_of(record, 0)
            await rig.ledger.commit(CRASHES.put(crash.id, crash, expect=ABSENT))
            crashes.append(Named(crash.id, group, node))
        groups.append(Named(group, group=group, parts=parts))
        deployments.append(Named(await _deployed(rig, group), group=group, parts=parts))
    await rig.install(module_zip("routed", source=ROUTED, name="Routed"))
    return World(
        subjects={
            "groups": tuple(groups),
            "nodes": tuple(
                Named(node, node=node, parts=tuple((each, node) for each in PLACES if node in PLACES[each]))
                for node in NODES
            ),
            "instances": tuple(instances),
            "crashes": tuple(crashes),
            "deployments": tuple(deployments),
        },
        module="routed",
        module_routes=MODULE_ROUTES,
        asset=next(iter(rig.setting.site.assets)),
    )


async def _deployed(rig: Rig, group: str) -> str:
    async with rig.client() as admin:
        assert (await admin.patch(f"/api/v1/groups/{group}", json={"env": {"A": "1"}})).status_code == 200
        answer = await admin.post(f"/api/v1/groups/{group}/deploy", json={})
        assert answer.status_code == 200, answer.text
        id: str = answer.json()["id"]
        return id


def bearer(text: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}", **headers}


def of(role: Role, **scope: tuple[str, ...]) -> Granted:
    return Granted(permissions=GRANTS[role], **scope)


def nobodies() -> list[MatrixCaller]:
    """Callers that are refused, or not even asked, for what everybody can see in their requests."""
    cookie, page, host = {"Cookie": "corral-x=y"}, {"Origin": EVIL}, {"Host": "evil.example.org"}
    return [
        MatrixCaller(name="none"),
        MatrixCaller(name="garbage", headers=bearer("corral_nonsense")),
        MatrixCaller(name="garbage of a workload", headers=bearer("cw1.x.y")),
        MatrixCaller(name="another scheme", headers={"Authorization": "Basic YWRtaW46YWRtaW4="}),
        MatrixCaller(name="an unknown cookie", headers=cookie),
        MatrixCaller(name="wrong Origin", headers=page, foreign_page=True),
        MatrixCaller(name="no Origin of its own", headers={"Origin": "null"}, foreign_page=True),
        MatrixCaller(name="another site", headers={"Sec-Fetch-Site": "cross-site"}, foreign_page=True),
        MatrixCaller(name="wrong Origin with a cookie", headers=cookie | page, foreign_page=True),
        MatrixCaller(name="wrong Host", headers=host, foreign_host=True),
        MatrixCaller(name="wrong Host with a cookie", headers=cookie | host, foreign_host=True),
    ]


async def holders_of_tokens(rig: Rig) -> list[MatrixCaller]:
    """Callers by the tokens of the fixed roles, narrowed in each way, and those that have lost theirs."""
    _, expired = await rig.token(Role.ADMIN, expires_in_seconds=1)
    rig.clock.offset += dt.timedelta(seconds=2)
    revoked_id, revoked = await rig.token(Role.ADMIN)
    async with rig.client() as admin:
        assert (await admin.delete(f"/api/v1/tokens/{revoked_id}")).status_code == 204
    roles = {role: (await rig.token(role))[1] for role in Role}
    _, few = await rig.token(Role.OPERATOR, permissions=[each.value for each in FEW])
    plain = [MatrixCaller(name=role, headers=bearer(roles[role]), granted=(of(role),)) for role in Role]
    everything = (of(Role.ADMIN),)
    return [
        MatrixCaller(name="expired", headers=bearer(expired)),
        MatrixCaller(name="revoked", headers=bearer(revoked)),
        *plain,
        MatrixCaller(
            name="narrowed by permission",
            headers=bearer(few),
            granted=(Granted(permissions=frozenset(FEW) | OF_EVERY_TOKEN),),
        ),
        MatrixCaller(
            name="ADMIN from a foreign page",
            headers=bearer(roles[Role.ADMIN], Origin=EVIL),
            granted=everything,
            foreign_page=True,
        ),
        MatrixCaller(
            name="ADMIN under a foreign Host",
            headers=bearer(roles[Role.ADMIN], Host="evil.example.org"),
            granted=everything,
            foreign_host=True,
        ),
        MatrixCaller(
            name="ADMIN under a foreign Host with a cookie",
            headers=bearer(roles[Role.ADMIN], Host="evil.example.org", Cookie="a=b"),
            granted=everything,
            foreign_host=True,
        ),
        *[await _scoped(rig, role, **scope) for role, scope in _SCOPES],
    ]


_SCOPES: tuple[tuple[Role, dict[str, tuple[str, ...]]], ...] = (
    (Role.OPERATOR, {"groups": ("lob*",)}),
    (Role.ADMIN, {"nodes": ("node-1",)}),
    (Role.ADMIN, {"groups": ("lob*",), "nodes": ("*-2", "node-3")}),
    (Role.ADMIN, {"groups": ("lobby",), "nodes": ("*-2", "node-3")}),
    (Role.VIEWER, {"groups": ("arena", "none-such")}),
    (Role.ADMIN, {"groups": ()}),
    (Role.ADMIN, {"groups": ("*",)}),
    (Role.ADMIN, {"groups": ("*",), "nodes": ("*",)}),
)


async def _scoped(rig: Rig, role: Role, **scope: tuple[str, ...]) -> MatrixCaller:
    _, text = await rig.token(role, scope=scope)
    named = " and ".join(f"{kind} {', '.join(names) or 'none'}" for kind, names in scope.items())
    return MatrixCaller(name=f"{role} of {named}", headers=bearer(text), granted=(of(role, **scope),))


async def users(rig: Rig) -> list[MatrixCaller]:
    """Callers whose rights come from their bindings, each with a token that would allow everything."""
    some = {"groups": ["lobby"], "nodes": ["node-1"]}
    async with rig.client() as admin:
        role = {"name": "few", "permissions": [each.value for each in FEW]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
        locked = await _user(rig, "locked", [{"role": "ADMIN"}])
        lock = await admin.post("/api/v1/users/locked/lock", json={"reason": "left"})
        assert lock.status_code == 200, lock.text
        gone = await _user(rig, "gone", [{"role": "ADMIN"}])
        assert (await admin.delete("/api/v1/users/gone")).status_code == 204
    return [
        MatrixCaller(name="token of a locked user", headers=locked),
        MatrixCaller(name="token of a removed user", headers=gone),
        MatrixCaller(
            name="user without a role",
            headers=await _user(rig, "nobody", []),
            granted=(Granted(permissions=OF_EVERY_TOKEN),),
        ),
        MatrixCaller(
            name="VIEWER with a token of an ADMIN",
            headers=await _user(rig, "viewer", [{"role": "VIEWER"}]),
            granted=(of(Role.VIEWER),),
        ),
        MatrixCaller(
            name="user of a custom role in a scope",
            headers=await _user(rig, "few", [{"role": "few", "scope": {"groups": ["arena"]}}]),
            granted=(Granted(permissions=frozenset(FEW) | OF_EVERY_TOKEN, groups=("arena",)),),
        ),
        MatrixCaller(
            name="user with several bindings",
            headers=await _user(
                rig,
                "several",
                [
                    {"role": "VIEWER"},
                    {"role": "OPERATOR", "scope": {"nodes": ["node-2"]}},
                    {"role": "ADMIN", "scope": some},
                ],
            ),
            granted=(
                of(Role.VIEWER),
                of(Role.OPERATOR, nodes=("node-2",)),
                of(Role.ADMIN, groups=("lobby",), nodes=("node-1",)),
            ),
        ),
    ]


async def _user(rig: Rig, name: str, bindings: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The headers of a user's token, which itself restricts nothing."""
    async with rig.client() as admin:
        made = await admin.post("/api/v1/users", json={"name": name, "bindings": list(bindings)})
        assert made.status_code == 201, made.text
    _, text = await rig.token(Role.ADMIN, owner=name)
    return bearer(text)


async def workloads(rig: Rig) -> list[MatrixCaller]:
    await rig.group("gate", category="proxy", min=0)
    game, proxy, ended = await rig.instance("lobby"), await rig.instance("gate"), await rig.instance("lobby")
    await rig.report(ended.id, state=InstanceState.STOPPED)
    return [
        MatrixCaller(name="workload", headers=bearer(token_of(rig, game)), run_of="game", instance=game.id),
        MatrixCaller(
            name="workload of a proxy",
            headers=bearer(token_of(rig, proxy)),
            run_of="proxy",
            instance=proxy.id,
        ),
        MatrixCaller(name="workload that has ended", headers=bearer(token_of(rig, ended))),
    ]


async def sessions(rig: Rig) -> list[MatrixCaller]:
    """People who have logged in, those who have only half of what it takes, and those whose session is over."""
    own = frozenset({Permission.SELF_READ, Permission.SELF_MANAGE})
    found = []
    for role in Role:
        whole = await _logged_in(rig, f"person-{role.lower()}", [{"role": role.value}])
        granted = (Granted(permissions=GRANTS[role] | own),)
        found.append(MatrixCaller(name=f"{role} in a browser", headers=whole, granted=granted))
    cookie = {"Cookie": whole["Cookie"]}
    page = whole | {"Origin": EVIL}
    host = whole | {"Host": "evil.example.org"}
    few = await _logged_in(rig, "person-few", [{"role": "few", "scope": {"nodes": ["node-2"]}}])
    ended, locked = await _logged_in(rig, "person-out"), await _logged_in(rig, "person-locked")
    line = await log_in(rig, "person-operator", kind="COMMAND_LINE")
    async with rig.client() as admin, rig.client("") as browser:
        assert (await browser.post("/api/v1/auth/logout", headers=ended)).status_code == 204
        assert (
            await admin.post("/api/v1/users/person-locked/lock", json={"reason": "left"})
        ).status_code == 200
    return [
        *found,
        MatrixCaller(name="cookie alone", headers=cookie),
        MatrixCaller(name="cookie with another secret", headers=cookie | {CSRF: few[CSRF]}),
        MatrixCaller(name="secret alone", headers={CSRF: whole[CSRF]}),
        MatrixCaller(name="session from a foreign page", headers=page, granted=granted, foreign_page=True),
        MatrixCaller(name="session under a foreign Host", headers=host, granted=granted, foreign_host=True),
        MatrixCaller(
            name="session of a user in a scope",
            headers=few,
            granted=(Granted(permissions=frozenset(FEW) | own, nodes=("node-2",)),),
        ),
        MatrixCaller(
            name="session of a user without a role",
            headers=await _logged_in(rig, "person-without"),
            granted=(Granted(permissions=own),),
        ),
        MatrixCaller(
            name="session of a command line",
            headers=bearer(line.json()["token"]),
            granted=(Granted(permissions=GRANTS[Role.OPERATOR] | own),),
        ),
        MatrixCaller(name="session that was ended", headers=ended),
        MatrixCaller(name="session of a locked user", headers=locked),
    ]


async def _logged_in(rig: Rig, name: str, bindings: Iterable[dict[str, Any]] = ()) -> dict[str, str]:
    """The headers of a browser in which a new user has logged in."""
    await make_user(rig, name, bindings=list(bindings))
    answer = await log_in(rig, name)
    return {"Cookie": "=".join(cookie_of(answer)), CSRF: answer.json()["csrf"]}


TICKETS_OF = (Role.VIEWER, "OPERATOR of groups lob*", "ADMIN of nodes node-1", "session of a user in a scope")


def by_tickets(known: Iterable[MatrixCaller]) -> list[MatrixCaller]:
    """Some of the others, by nothing but a ticket: it opens what its caller may, where a ticket is taken."""
    return [
        dataclasses.replace(each, name=f"ticket of {each.name}", headers={}, ticket_for=each.headers)
        for each in known
        if each.name in TICKETS_OF
    ]


async def callers(rig: Rig) -> list[MatrixCaller]:
    """Everybody. To add a way to call, add it to one of these."""
    known = [*await holders_of_tokens(rig), *await users(rig), *await sessions(rig)]
    tickets = by_tickets(known)
    assert len(tickets) == len(TICKETS_OF)
    return [*nobodies(), *known, *tickets, *await workloads(rig)]
