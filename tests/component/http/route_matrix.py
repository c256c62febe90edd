"""What each route owes each caller, worked out from the table of routes and the grants of the roles.

It shares no code with the pipeline that decides: neither how scopes are compared nor where a route's subject is. What is
said here once more, in other words, is what the rest of the suite may rely on. A route of a kind, a permission or a
parameter that is not foreseen here has no expectation, which fails.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from corral.controller.http.pipeline.route_table import (
    PUBLIC,
    WORKLOAD,
    Act,
    Asset,
    Build,
    Download,
    FormUpload,
    LoginRoute,
    Mutate,
    Once,
    Page,
    Probe,
    ProxyRead,
    Read,
    Relay,
    Report,
    Route,
    Socket,
    Stream,
    Upload,
)
from corral.domain.permissions import Permission

SAFE = ("GET", "HEAD")
KINDS = (
    Act, Asset, Build, Download, FormUpload, LoginRoute, Mutate, Once, Page, Probe, ProxyRead, Read, Relay, Report, Socket, Stream,
    Upload,
)  # fmt: skip

WITHOUT_A_SUBJECT = {
    "GET /api/v1/groups",
    "POST /api/v1/groups",
    "GET /api/v1/instances",
    "POST /api/v1/instances",
    "GET /api/v1/nodes",
    "GET /api/v1/crashes",
    "GET /api/v1/deployments",
    "GET /api/v1/decisions",
    "GET /api/v1/events",
    "GET /api/v1/events/stream",
    "GET /api/v1/events/types",
    "POST /api/v1/events/tickets",
    "GET /api/v1/auth/me",
    "POST /api/v1/auth/logout",
    "POST /api/v1/auth/device/find",
    "POST /api/v1/auth/device/decide",
    "POST /api/v1/auth/password",
    "POST /api/v1/auth/totp",
    "POST /api/v1/auth/totp/confirm",
    "POST /api/v1/auth/totp/remove",
    "POST /api/v1/auth/recovery-codes",
    "GET /api/v1/auth/sessions",
    "DELETE /api/v1/auth/sessions/{id}",
    "GET /api/v1/schemas/group",
    "GET /api/v1/cluster",
    "GET /api/v1/catalog",
    "POST /api/v1/commands/execute",
    "POST /api/commands/execute",
    "GET /api/console",
    "GET /api/v1/logs",
    "GET /api/v1/logs/stream",
    "GET /api/v1/templates",
    "GET /api/v1/openapi.json",
    "GET /api/node",
    "GET /api/cluster/nodes",
    "GET /api/instances",
    "POST /api/instances",
    "GET /api/configurations",
    "PUT /api/configurations/{name}",
    "GET /api/templates",
}
"""Routes that callers with any scope may use: they leave out what is outside, refuse it, or show nothing of any scope."""


UNIVERSE = {"instances": "instances", "cluster": "nodes", "configurations": "groups"}
"""What the nouns of Universe's paths are here."""
BY_ITSELF = ("PUT /api/instances/{id}/state",)
"""Changes that an instance may make, too: of itself."""

UNSCOPED_RESOURCES = ("templates",)
"""What no group or node has for itself: permissions for it have to hold everywhere, whatever the path names; but for reads
of what a group within the scope uses."""

ANY = "\0"
"""In place of a name that could be any."""


class Named(NamedTuple):
    """Something that belongs to a group, to a node or to both."""

    id: str
    group: str | None = None
    node: str | None = None
    parts: tuple[tuple[str, str], ...] = ()
    """Of a group, a node or a deployment: groups and nodes of the instances that a change of it concerns."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is, by the noun of its paths; and one word for each parameter of a path that names anything else."""

    subjects: Mapping[str, tuple[Named, ...]]
    module: str
    module_routes: Mapping[str, tuple[tuple[str, Permission | None], ...]]
    """By method: paths below that module, and what it asks for; None: it has no such route."""
    asset: str = ""
    """The name of a file of the dashboard."""


@dataclass(frozen=True, kw_only=True)
class Granted:
    """Permissions, and where they hold; None and None: everywhere."""

    permissions: frozenset[Permission]
    groups: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None

    @property
    def everywhere(self) -> bool:
        return self.groups is None and self.nodes is None

    def covers(self, subject: Named) -> bool:
        """A scope of groups holds no node as such, one of nodes no group as such, each of them instances."""
        if self.everywhere:
            return True
        if subject.group is not None and subject.node is not None:
            return self.covers_instance(subject.group, subject.node)
        if subject.group is not None:
            return _fits(self.groups, subject.group, unnamed=False)
        assert subject.node is not None
        return _fits(self.nodes, subject.node, unnamed=False)

    def covers_instance(self, group: str, node: str) -> bool:
        return _fits(self.groups, group, unnamed=True) and _fits(self.nodes, node, unnamed=True)


def _fits(patterns: tuple[str, ...] | None, name: str, *, unnamed: bool) -> bool:
    if patterns is None:
        return unnamed
    return any(fnmatch.fnmatchcase(name, each) for each in patterns)


@dataclass(frozen=True, kw_only=True)
class MatrixCaller:
    """A way to call. To add one: its headers, and what it may do if it is who it says it is."""

    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    granted: tuple[Granted, ...] | None = None
    """None: it is nobody, whatever it sends."""
    run_of: str = ""
    """The category of the group whose run it is: a workload."""
    instance: str = ""
    """Of a workload: its id."""
    foreign_host: bool = False
    """It names another host than ours."""
    foreign_page: bool = False
    """A page of another origin has made it."""
    ticket_for: Mapping[str, str] | None = None
    """Headers by which it gets a ticket for each request, and shows that alone."""

    @property
    def bearer(self) -> bool:
        return self.headers.get("Authorization", "").startswith("Bearer ")

    @property
    def is_scoped(self) -> bool:
        return any(not each.everywhere for each in self.granted or ())

    def has(self, permission: Permission) -> list[Granted]:
        return [each for each in self.granted or () if permission in each.permissions]


class Verdict(enum.Enum):
    PASSES = "passes"
    UNKNOWN_CALLER = "401"
    FORBIDDEN = "403"
    FOREIGN_PAGE = "403 for a page"
    NOT_THERE = "404"
    FOREIGN_HOST = "421"


ANSWERS = {
    Verdict.UNKNOWN_CALLER: (401, {"UNAUTHENTICATED", "WORKLOAD_TOKEN_INVALID"}),
    Verdict.FORBIDDEN: (403, {"FORBIDDEN"}),
    Verdict.FOREIGN_PAGE: (403, {"ORIGIN_REFUSED"}),
    Verdict.NOT_THERE: (404, {"NOT_FOUND"}),
    Verdict.FOREIGN_HOST: (421, {"MISDIRECTED_REQUEST"}),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to one route."""

    route: Route
    method: str
    path: str
    subject: Named | None = None
    declared: Permission | None = None
    """What the module behind it asks for."""
    upgrade: bool = False
    first: bool = True
    """On the first of several subjects: for who has no scope all are alike."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}{' (WebSocket)' if self.upgrade else ''}"


def requests_of(route: Route, world: World) -> Iterator[Request]:
    """Every request to be tried: each method that it answers, on each subject that its path may name."""
    if not isinstance(route, KINDS):
        raise LookupError(f"{route.name} is of a kind that nothing is expected of")
    for number, (subject, path, declared) in enumerate(_targets(route, world)):
        first = subject is None or number == 0
        plain = Request(
            route=route, method=route.method, path=path, subject=subject, declared=declared, first=first
        )
        yield plain
        if route.method == "GET" and first:
            yield dataclasses.replace(plain, method="HEAD")
        if isinstance(route, Socket):
            yield dataclasses.replace(plain, upgrade=True)


def _targets(route: Route, world: World) -> Iterator[tuple[Named | None, str, Permission | None]]:
    if isinstance(route, Relay):
        for rest, declared in world.module_routes[route.method]:
            yield None, route.path.replace("{id}", world.module).replace("{path}", rest), declared
        return
    if isinstance(route, Page):
        yield None, route.path.replace("{name}", world.asset), None
        return
    noun = _subject_noun(route)
    if noun is None:
        yield None, _filled(route.path), None
        return
    for each in world.subjects[noun]:
        start, _, rest = route.path.partition("}")
        yield each, _filled(start[: start.index("{")] + each.id + rest), None


def _subject_noun(route: Route) -> str | None:
    """Of which resource a path names one right after its noun: that is what the route is about."""
    match route.path.split("/"):
        case [
            "",
            "api",
            "v1",
            ("groups" | "nodes" | "instances" | "deployments" | "crashes") as noun,
            parameter,
            *_,
        ] if parameter.startswith("{"):
            return noun
        case ["", "api", ("instances" | "configurations") as noun, parameter, *_] if parameter[:1] == "{":
            return UNIVERSE[noun]
        case ["", "api", "cluster" as noun, "nodes", _, *_]:
            return UNIVERSE[noun]
    return None


def _filled(path: str) -> str:
    """The path with a word in place of each parameter that no scope is about."""
    filled = path
    for name in ("id", "name", "group", "path", "platform", "version", "number"):
        filled = filled.replace(f"{{{name}}}", "1" if name == "number" else "none-such")
    if "{" in filled:
        raise LookupError(f"{path} has a parameter that nothing is known about")
    return filled


def expected(request: Request, caller: MatrixCaller) -> Verdict:
    """What has to come of a request, before anything in it but its head is looked at."""
    route = request.route
    if caller.foreign_host and ("Cookie" in caller.headers or route.browser):
        return Verdict.FOREIGN_HOST
    opens = isinstance(route, Stream) or request.upgrade or request.method not in SAFE
    if caller.foreign_page and opens and not caller.bearer:
        return Verdict.FOREIGN_PAGE
    if route.permission is PUBLIC:
        return Verdict.PASSES
    if route.permission is WORKLOAD:
        return Verdict.PASSES if caller.run_of else Verdict.UNKNOWN_CALLER
    if not isinstance(route.permission, Permission):
        raise LookupError(f"{route.name} asks for {route.permission}, which nobody is known to have")
    if caller.run_of and isinstance(route, ProxyRead):
        return Verdict.PASSES if caller.run_of == "proxy" else Verdict.FORBIDDEN
    if caller.run_of and route.name in BY_ITSELF:
        own = request.subject is not None and request.subject.id == caller.instance
        return Verdict.PASSES if own else Verdict.FORBIDDEN
    if caller.granted is None or (caller.ticket_for is not None and not route.ticketed):
        return Verdict.UNKNOWN_CALLER
    return _authorised(request, caller, route.permission)


def _authorised(request: Request, caller: MatrixCaller, permission: Permission) -> Verdict:
    having = caller.has(permission)
    if not having:
        return Verdict.FORBIDDEN
    if request.declared is not None and not any(each.everywhere for each in caller.has(request.declared)):
        return Verdict.FORBIDDEN
    if any(each.everywhere for each in having) or request.route.name in WITHOUT_A_SUBJECT:
        return Verdict.PASSES
    subject = request.subject
    if (
        permission in (Permission.TEMPLATES_READ, Permission.TEMPLATES_CONTENT)
        and "{name}" in request.route.path
    ):
        return Verdict.NOT_THERE  # no group uses the template of the matrix
    if subject is None or permission.partition(".")[0] in UNSCOPED_RESOURCES:
        return Verdict.FORBIDDEN
    if not any(each.covers(subject) for each in having):
        return Verdict.NOT_THERE
    whole = all(any(each.covers_instance(*part) for each in having) for part in subject.parts)
    return Verdict.PASSES if whole or request.method in SAFE else Verdict.FORBIDDEN
