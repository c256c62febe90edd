"""Resources of the client. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from corral.client.async_calls import AsyncCalls
from corral.client.generated.asynchronous.audit import AsyncAudit
from corral.client.generated.asynchronous.auth import AsyncAuth
from corral.client.generated.asynchronous.capabilities import AsyncCapabilities
from corral.client.generated.asynchronous.catalog import AsyncCatalog
from corral.client.generated.asynchronous.cluster import AsyncCluster
from corral.client.generated.asynchronous.commands import AsyncCommands
from corral.client.generated.asynchronous.crashes import AsyncCrashes
from corral.client.generated.asynchronous.decisions import AsyncDecisions
from corral.client.generated.asynchronous.deployments import AsyncDeployments
from corral.client.generated.asynchronous.events import AsyncEvents
from corral.client.generated.asynchronous.groups import AsyncGroups
from corral.client.generated.asynchronous.instances import AsyncInstances
from corral.client.generated.asynchronous.logs import AsyncLogs
from corral.client.generated.asynchronous.modules import AsyncModules
from corral.client.generated.asynchronous.nodes import AsyncNodes
from corral.client.generated.asynchronous.probes import AsyncProbes
from corral.client.generated.asynchronous.roles import AsyncRoles
from corral.client.generated.asynchronous.schemas import AsyncSchemas
from corral.client.generated.asynchronous.sessions import AsyncSessions
from corral.client.generated.asynchronous.settings import AsyncSettings
from corral.client.generated.asynchronous.templates import AsyncTemplates
from corral.client.generated.asynchronous.tokens import AsyncTokens
from corral.client.generated.asynchronous.users import AsyncUsers
from corral.client.generated.asynchronous.workload import AsyncWorkload


class AsyncResources:
    """The API, resource by resource."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls
        self.audit = AsyncAudit(calls)
        self.auth = AsyncAuth(calls)
        self.capabilities = AsyncCapabilities(calls)
        self.catalog = AsyncCatalog(calls)
        self.cluster = AsyncCluster(calls)
        self.commands = AsyncCommands(calls)
        self.crashes = AsyncCrashes(calls)
        self.decisions = AsyncDecisions(calls)
        self.deployments = AsyncDeployments(calls)
        self.events = AsyncEvents(calls)
        self.groups = AsyncGroups(calls)
        self.instances = AsyncInstances(calls)
        self.logs = AsyncLogs(calls)
        self.modules = AsyncModules(calls)
        self.nodes = AsyncNodes(calls)
        self.probes = AsyncProbes(calls)
        self.roles = AsyncRoles(calls)
        self.schemas = AsyncSchemas(calls)
        self.sessions = AsyncSessions(calls)
        self.settings = AsyncSettings(calls)
        self.templates = AsyncTemplates(calls)
        self.tokens = AsyncTokens(calls)
        self.users = AsyncUsers(calls)
        self.workload = AsyncWorkload(calls)
