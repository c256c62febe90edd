"""Resources of the client. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from corral.client.generated.sync.audit import Audit
from corral.client.generated.sync.auth import Auth
from corral.client.generated.sync.capabilities import Capabilities
from corral.client.generated.sync.catalog import Catalog
from corral.client.generated.sync.cluster import Cluster
from corral.client.generated.sync.commands import Commands
from corral.client.generated.sync.crashes import Crashes
from corral.client.generated.sync.decisions import Decisions
from corral.client.generated.sync.deployments import Deployments
from corral.client.generated.sync.events import Events
from corral.client.generated.sync.groups import Groups
from corral.client.generated.sync.instances import Instances
from corral.client.generated.sync.logs import Logs
from corral.client.generated.sync.modules import Modules
from corral.client.generated.sync.nodes import Nodes
from corral.client.generated.sync.probes import Probes
from corral.client.generated.sync.roles import Roles
from corral.client.generated.sync.schemas import Schemas
from corral.client.generated.sync.sessions import Sessions
from corral.client.generated.sync.settings import Settings
from corral.client.generated.sync.templates import Templates
from corral.client.generated.sync.tokens import Tokens
from corral.client.generated.sync.users import Users
from corral.client.generated.sync.workload import Workload
from corral.client.sync_calls import SyncCalls


class SyncResources:
    """The API, resource by resource."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls
        self.audit = Audit(calls)
        self.auth = Auth(calls)
        self.capabilities = Capabilities(calls)
        self.catalog = Catalog(calls)
        self.cluster = Cluster(calls)
        self.commands = Commands(calls)
        self.crashes = Crashes(calls)
        self.decisions = Decisions(calls)
        self.deployments = Deployments(calls)
        self.events = Events(calls)
        self.groups = Groups(calls)
        self.instances = Instances(calls)
        self.logs = Logs(calls)
        self.modules = Modules(calls)
        self.nodes = Nodes(calls)
        self.probes = Probes(calls)
        self.roles = Roles(calls)
        self.schemas = Schemas(calls)
        self.sessions = Sessions(calls)
        self.settings = Settings(calls)
        self.templates = Templates(calls)
        self.tokens = Tokens(calls)
        self.users = Users(calls)
        self.workload = Workload(calls)
