"""All routes of the API."""

from __future__ import annotations

from typing import Final

from corral.controller.http.openapi import with_description
from corral.controller.http.pipeline.route_table import Route
from corral.controller.http.resources import (
    audit,
    cluster,
    decisions,
    event_types,
    events,
    join_tokens,
    logs,
    node_commands,
    node_drains,
    nodes,
    pages,
    probes,
    settings,
    workload,
)
from corral.controller.http.resources.accounts import (
    device_login,
    login,
    own_account,
    roles,
    sessions,
    tokens,
    user_credentials,
    users,
)
from corral.controller.http.resources.groups import (
    apply,
    deployments,
    group_operations,
    groups,
    registry,
    reload,
    resolved,
    revisions,
)
from corral.controller.http.resources.instances import (
    commands,
    console_pages,
    console_sockets,
    consoles,
    crashes,
    instance_file_changes,
    instance_files,
    instance_lifecycle,
    instance_patches,
    instance_plans,
    instances,
    runs,
    sent_commands,
)
from corral.controller.http.resources.modules import (
    capabilities,
    module_frontend,
    module_nodes,
    module_verbs,
    modules,
)
from corral.controller.http.resources.templates import (
    catalog,
    node_caches,
    template_files,
    template_versions,
    templates,
)
from corral.controller.http.resources.universe import commands as universe_commands
from corral.controller.http.resources.universe import (
    universe_configurations,
    universe_consoles,
    universe_controller,
    universe_instances,
    universe_states,
    universe_templates,
)
from corral.controller.http.resources.why import why

ROUTES: Final[tuple[Route, ...]] = with_description(
    (
        *probes.ROUTES,
        *pages.ROUTES,
        *login.ROUTES,
        *own_account.ROUTES,
        *device_login.ROUTES,
        *sessions.ROUTES,
        *tokens.ROUTES,
        *users.ROUTES,
        *user_credentials.ROUTES,
        *roles.ROUTES,
        *join_tokens.ROUTES,
        *nodes.ROUTES,
        *node_drains.ROUTES,
        *node_commands.ROUTES,
        *node_caches.ROUTES,
        *groups.ROUTES,
        *group_operations.ROUTES,
        *deployments.ROUTES,
        *revisions.ROUTES,
        *resolved.ROUTES,
        *registry.ROUTES,
        *apply.ROUTES,
        *reload.ROUTES,
        *instances.ROUTES,
        *instance_lifecycle.ROUTES,
        *instance_plans.ROUTES,
        *instance_patches.ROUTES,
        *instance_files.ROUTES,
        *instance_file_changes.ROUTES,
        *runs.ROUTES,
        *console_pages.ROUTES,
        *consoles.ROUTES,
        *console_sockets.ROUTES,
        *sent_commands.ROUTES,
        *templates.ROUTES,
        *template_versions.ROUTES,
        *template_files.ROUTES,
        *catalog.ROUTES,
        *crashes.ROUTES,
        *decisions.ROUTES,
        *why.ROUTES,
        *events.ROUTES,
        *event_types.ROUTES,
        *logs.ROUTES,
        *audit.ROUTES,
        *cluster.ROUTES,
        *settings.ROUTES,
        *workload.ROUTES,
        *modules.ROUTES,
        *module_verbs.ROUTES,
        *module_nodes.ROUTES,
        *capabilities.ROUTES,
        *commands.ROUTES,
        *module_frontend.ROUTES,
        *universe_controller.ROUTES,
        *universe_commands.ROUTES,
        *universe_instances.ROUTES,
        *universe_states.ROUTES,
        *universe_consoles.ROUTES,
        *universe_configurations.ROUTES,
        *universe_templates.ROUTES,
    )
)
