"""Registrations of a module at its start, checked before any of them is bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from corral.domain.modules.capability_graph import provisions_on
from corral.domain.modules.manifest import Manifest, ModuleHost
from corral.domain.permissions import Permission
from corral.modules.services.route_table import PathPattern
from corral.sdk.commands import MAX_COMMANDS
from corral.sdk.protocol.messages import CommandDeclaration, Registrations, RouteDeclaration
from corral.sdk.routes import MAX_ROUTES

RESERVED_SEGMENTS: Final = frozenset(
    {
        "activate",
        "config",
        "deactivate",
        "frontend",
        "health",
        "logs",
        "nodes",
        "openapi.json",
        "pause",
        "recover",
        "reload",
        "resume",
        "storage",
        "upgrade",
        "why",
    }
)
"""First segments below a module's path that are reserved for the host."""
METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
MAX_ROUTE_DEADLINE_MS: Final = 300_000
MAX_ROUTE_BODY: Final = 3 * 1024 * 1024
"""A request reaches the module in one frame."""
_NOT_ON_NODES: Final = "nobody could call it on a node; register it in the part on the controller"


class RegistrationRefused(Exception):
    """`what` completes the reason `bad_registration:`; the message is for the author."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what
        self.message = message


def check_registrations(
    manifest: Manifest,
    given: Registrations,
    *,
    host: ModuleHost = ModuleHost.CONTROLLER,
    taken_commands: Collection[str] = (),
) -> None:
    """Raise `RegistrationRefused` for the first registration that cannot be bound on this host;
    `taken_commands` are those of other modules."""
    _check_bindings(manifest, given, host)
    if host is ModuleHost.DAEMON:
        _check_reach(given)
    _check_routes(given.routes)
    _check_commands(given.commands, taken_commands)


def _check_bindings(manifest: Manifest, given: Registrations, host: ModuleHost) -> None:
    declared = {provision.id for provision in provisions_on(manifest, host)}
    bound = [binding.id for binding in given.bindings]
    for id in bound:
        if id not in declared:
            raise RegistrationRefused(
                f"capability:{id}",
                f"it hands out '{id}' but does not declare it under capabilities.provides",
            )
        if bound.count(id) > 1:
            raise RegistrationRefused(f"capability:{id}", f"it hands out '{id}' twice")
    for id in sorted(declared - set(bound)):
        raise RegistrationRefused(
            f"capability:{id}", f"it declares '{id}' but capability_handles() gives no binding for it"
        )


def _check_reach(given: Registrations) -> None:
    """Refuse what cannot be called on a node: a refusal is better than a registration that is never
    called."""
    for route in given.routes:
        named = f"{route.method} {route.path}"
        raise RegistrationRefused(f"route:{named}", f"route '{named}': {_NOT_ON_NODES}")
    for command in given.commands:
        named = " ".join(command.name.split())[:100]
        raise RegistrationRefused(f"command:{named}", f"command '{named}': {_NOT_ON_NODES}")


def _check_routes(routes: tuple[RouteDeclaration, ...]) -> None:
    if len(routes) > MAX_ROUTES:
        raise RegistrationRefused("route", f"{len(routes)} routes; at most {MAX_ROUTES} are allowed")
    seen: set[tuple[str, str]] = set()
    for route in routes:
        named = f"{route.method} {route.path}"
        problem = _route_problem(route)
        if problem:
            raise RegistrationRefused(f"route:{named}", f"route '{named}': {problem}")
        shape = (route.method, PathPattern(route.path).shape)
        if shape in seen:
            raise RegistrationRefused(f"route:{named}", f"route '{named}' is registered twice")
        seen.add(shape)


def _route_problem(route: RouteDeclaration) -> str:
    if route.method not in METHODS:
        return f"unknown method; known: {', '.join(sorted(METHODS))}"
    try:
        pattern = PathPattern(route.path)
    except ValueError as error:
        return str(error)
    if pattern.first in RESERVED_SEGMENTS or route.path == "/":
        return f"'/{pattern.first}' is the host's own; choose another first segment"
    problem = _permission_problem(route.permission)
    if problem:
        return problem
    if not 0 < route.deadline_ms <= MAX_ROUTE_DEADLINE_MS:
        return f"deadline_ms must be 1 to {MAX_ROUTE_DEADLINE_MS}"
    if not 0 <= route.max_body <= MAX_ROUTE_BODY:
        return f"max_body must be 0 to {MAX_ROUTE_BODY}"
    return ""


def _permission_problem(permission: str) -> str:
    known = [known.value for known in Permission]
    return "" if permission in known else f"unknown permission '{permission}'; known: {', '.join(known)}"


def _check_commands(commands: tuple[CommandDeclaration, ...], taken: Iterable[str]) -> None:
    if len(commands) > MAX_COMMANDS:
        raise RegistrationRefused("command", f"{len(commands)} commands; at most {MAX_COMMANDS} are allowed")
    seen = set(taken)
    for command in commands:
        name = " ".join(command.name.split())
        if not name or len(name) > 100:
            raise RegistrationRefused("command", f"'{command.name[:100]}' is not a name of a command")
        if name in seen:
            raise RegistrationRefused(f"command:{name}", f"command '{name}' is taken already")
        problem = _permission_problem(command.permission)
        if problem:
            raise RegistrationRefused(f"command:{name}", f"command '{name}': {problem}")
        seen.add(name)
