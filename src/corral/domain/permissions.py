"""Permissions by resource and verb, and the three built-in roles."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Permission(enum.StrEnum):
    AUDIT_READ = "audit.read"
    CATALOG_MANAGE = "catalog.manage"
    CATALOG_READ = "catalog.read"
    CLUSTER_MANAGE = "cluster.manage"
    CLUSTER_READ = "cluster.read"
    COMMANDS_EXECUTE = "commands.execute"
    CRASHES_READ = "crashes.read"
    DECISIONS_READ = "decisions.read"
    DEPLOYMENTS_MANAGE = "deployments.manage"
    DEPLOYMENTS_READ = "deployments.read"
    EVENTS_READ = "events.read"
    GROUPS_MANAGE = "groups.manage"
    GROUPS_READ = "groups.read"
    INSTANCES_COMMAND = "instances.command"
    INSTANCES_CONSOLE = "instances.console"
    INSTANCES_FILES = "instances.files"
    INSTANCES_FILES_WRITE = "instances.files.write"
    INSTANCES_MANAGE = "instances.manage"
    INSTANCES_READ = "instances.read"
    INSTANCES_SENSITIVE = "instances.sensitive"
    LOGS_MANAGE = "logs.manage"
    LOGS_READ = "logs.read"
    METRICS_READ = "metrics.read"
    MODULES_MANAGE = "modules.manage"
    MODULES_READ = "modules.read"
    MODULES_USE = "modules.use"
    NODES_DRAIN = "nodes.drain"
    NODES_ENROL = "nodes.enrol"
    NODES_MANAGE = "nodes.manage"
    NODES_READ = "nodes.read"
    NODES_SHUTDOWN = "nodes.shutdown"
    ROLES_MANAGE = "roles.manage"
    ROLES_READ = "roles.read"
    SELF_MANAGE = "self.manage"
    SELF_READ = "self.read"
    SESSIONS_MANAGE = "sessions.manage"
    SESSIONS_READ = "sessions.read"
    SETTINGS_READ = "settings.read"
    TEMPLATES_CONTENT = "templates.content"
    TEMPLATES_MANAGE = "templates.manage"
    TEMPLATES_READ = "templates.read"
    TOKENS_MANAGE = "tokens.manage"
    TOKENS_READ = "tokens.read"
    USERS_MANAGE = "users.manage"
    USERS_READ = "users.read"


class Role(enum.StrEnum):
    ADMIN = "ADMIN"
    OPERATOR = "OPERATOR"
    VIEWER = "VIEWER"


_VIEWER: Final = frozenset(
    {
        Permission.CATALOG_READ,
        Permission.CLUSTER_READ,
        Permission.CRASHES_READ,
        Permission.DECISIONS_READ,
        Permission.DEPLOYMENTS_READ,
        Permission.EVENTS_READ,
        Permission.GROUPS_READ,
        Permission.INSTANCES_READ,
        Permission.METRICS_READ,
        Permission.MODULES_READ,
        Permission.NODES_READ,
        Permission.SELF_READ,
        Permission.TEMPLATES_READ,
    }
)
_OPERATOR: Final = _VIEWER | {
    Permission.CATALOG_MANAGE,
    Permission.DEPLOYMENTS_MANAGE,
    Permission.GROUPS_MANAGE,
    Permission.INSTANCES_COMMAND,
    Permission.INSTANCES_CONSOLE,
    Permission.INSTANCES_FILES,
    Permission.INSTANCES_FILES_WRITE,
    Permission.INSTANCES_MANAGE,
    Permission.INSTANCES_SENSITIVE,
    Permission.LOGS_MANAGE,
    Permission.LOGS_READ,
    Permission.MODULES_USE,
    Permission.NODES_DRAIN,
    Permission.NODES_MANAGE,
    Permission.TEMPLATES_CONTENT,
    Permission.TEMPLATES_MANAGE,
}

GRANTS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Permission),
}
"""Deny by default: what is not listed here is refused."""

OF_EVERY_TOKEN: Final = frozenset({Permission.SELF_READ})
"""Whoever has a token may ask what it allows, however narrow it is."""
OF_EVERY_SESSION: Final = frozenset({Permission.SELF_MANAGE, Permission.SELF_READ})
"""Whoever has logged in may look after his own account, whatever his roles are."""


def allows(role: Role, permission: Permission) -> bool:
    return permission in GRANTS[role]
