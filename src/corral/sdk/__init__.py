"""SDK of Corral: everything a module may use. The only package of Corral that a module can import.

```python
from corral.sdk import ModuleContext, PlatformModule, Routes

class Hello(PlatformModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        ctx.logger.info("hello from %s", ctx.manifest.version)

    def register_routes(self, routes: Routes) -> None:
        routes.get("/hello", lambda request: {"hello": request.caller.name})
```

A module runs in a process of its own. Arguments and results are plain values, and every call to the host
is awaited.
"""

from corral.sdk.capabilities import Capabilities, CapabilityBinding, CapabilityHandle
from corral.sdk.commands import CommandCall, CommandParameter, Commands
from corral.sdk.context import Host, ModuleContext
from corral.sdk.errors import (
    BadRegistration,
    CapabilityTypeError,
    CapabilityUnavailable,
    ContextMisused,
    HostError,
    HostTimeout,
    QueryInvalid,
    Refused,
    SdkError,
    StorageQuotaExceeded,
    StorageUnavailable,
)
from corral.sdk.events import Event, EventBus, Subscription
from corral.sdk.files import Files
from corral.sdk.filters import F
from corral.sdk.health import Health
from corral.sdk.http_client import HttpAnswer, HttpClient, HttpRequestFailed
from corral.sdk.http_messages import Caller, HttpError, Request, Response
from corral.sdk.instance_files import INSTANCE_FILES, FileEntry, InstanceFiles
from corral.sdk.instances import ExitInfo, InstanceHandle, InstanceSpec
from corral.sdk.manifest import Manifest
from corral.sdk.metrics import Counter, Gauge, Histogram, Metrics
from corral.sdk.module_classes import DaemonModule, PlatformModule
from corral.sdk.processes import Processes, SideProcess
from corral.sdk.resources import ResourceMissing, Resources
from corral.sdk.routes import Routes
from corral.sdk.scheduler import ScheduledTask, Scheduler
from corral.sdk.storage import (
    ABSENT,
    Collection,
    DocumentStorage,
    Found,
    Index,
    KeyValueStorage,
    Stored,
    Transaction,
)
from corral.sdk.version import SDK_VERSION

__all__ = [
    "ABSENT",
    "INSTANCE_FILES",
    "SDK_VERSION",
    "BadRegistration",
    "Caller",
    "Capabilities",
    "CapabilityBinding",
    "CapabilityHandle",
    "CapabilityTypeError",
    "CapabilityUnavailable",
    "Collection",
    "CommandCall",
    "CommandParameter",
    "Commands",
    "ContextMisused",
    "Counter",
    "DaemonModule",
    "DocumentStorage",
    "Event",
    "EventBus",
    "ExitInfo",
    "F",
    "FileEntry",
    "Files",
    "Found",
    "Gauge",
    "Health",
    "Histogram",
    "Host",
    "HostError",
    "HostTimeout",
    "HttpAnswer",
    "HttpClient",
    "HttpError",
    "HttpRequestFailed",
    "Index",
    "InstanceFiles",
    "InstanceHandle",
    "InstanceSpec",
    "KeyValueStorage",
    "Manifest",
    "Metrics",
    "ModuleContext",
    "PlatformModule",
    "Processes",
    "QueryInvalid",
    "Refused",
    "Request",
    "ResourceMissing",
    "Resources",
    "Response",
    "Routes",
    "ScheduledTask",
    "Scheduler",
    "SdkError",
    "SideProcess",
    "StorageQuotaExceeded",
    "StorageUnavailable",
    "Stored",
    "Subscription",
    "Transaction",
]
