"""What the API needs of the other parts of a term: the cluster, instances, and their files."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Protocol

import msgspec

from corral.controller.distribution.instance_file_transfers import (
    ChangedFiles,
    FileBody,
    FileChange,
    OpenedFile,
)
from corral.controller.distribution.instance_files import FileListing, FilePart, ListedFile, WalkRequest
from corral.controller.distribution.node_caches import CacheReport, SyncAnswer
from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.instance_commands import InstanceCommands
from corral.controller.instances.node_commands import NodeCommands
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.start_identity import Repair
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.ledger import Actor
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import Epoch
from corral.system.controller_config import FilesSection


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, under which epoch, and where it is reached."""

    holder: str
    epoch: Epoch
    http: str
    grpc: str


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A controller of the cluster."""

    id: str
    role: str
    http: str
    grpc: str
    version: str


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    certificate_pem: str
    ca_pem: str
    serial: str
    expires_at: dt.datetime


class ClusterControl(Protocol):
    """Operations of the API on the cluster as a whole."""

    @property
    def store(self) -> str:
        """The name of the store's adapter."""

    def leader(self) -> LeaderView: ...

    def members(self) -> Sequence[MemberView]: ...

    def bootstrap_addresses(self) -> Sequence[str]:
        """Where a new node exchanges its join token."""

    async def raise_epoch(self, *, actor: Actor) -> Epoch:
        """Lift lease and fence; returns the epoch that rules now. Repeating it is harmless."""

    def shut_down(self, reason: str) -> None:
        """End this controller in order, soon: everything that it does, and nothing that runs on nodes. Idempotent."""

    async def issue_certificate(self, *, name: str, csr_pem: str) -> IssuedCertificate:
        """A certificate for this name and the request's key. INVALID_FIELD when the request is bad."""


class InstanceControl(Protocol):
    """Operations of the API on instances."""

    @property
    def placing(self) -> asyncio.Lock:
        """Held during a placement and its commit: concurrent placements would only conflict."""

    @property
    def drift(self) -> DriftView:
        """Which instances run as the present documents say."""

    @property
    def documents(self) -> asyncio.Lock:
        """Held during a check of group documents and its commit: one may depend on others that are not written."""

    @property
    def signals(self) -> PlanSignals:
        """What a plan depends on beside the records."""

    def workspace(self, *, cause: str, now: dt.datetime, request: str = "", by: str = "") -> Workspace:
        """A place to describe changes in; nothing happens before its steps are committed."""

    @property
    def commands(self) -> InstanceCommands:
        """Sends lines into the input of instances."""

    @property
    def node_commands(self) -> NodeCommands:
        """Asks nodes what they know themselves."""

    async def repair_numbers(self, actor: Actor) -> Repair:
        """Set the counter of starts by what the records use; audited."""

    async def returned(self, nodes: Collection[str], *, timeout: float) -> bool:
        """Whether one of these nodes is connected, now or within so many seconds."""

    async def settled(
        self, id: str, incarnation: int, accepts: Callable[[InstanceRecord], bool], timeout: float
    ) -> StoredRecord[InstanceRecord]:
        """The record as soon as it is as wanted, its run has ended or another took its place. TIMEOUT."""


class FileDistribution(Protocol):
    """Operations of the API on files of nodes: sending them there and fetching them."""

    async def sync(self, name: str, nodes: Sequence[str] | None = None) -> list[SyncAnswer]:
        """A template's current version into the caches of these nodes, or of all that are connected.
        NOT_FOUND for a template or a node that does not exist; every other error is reported per node."""

    async def cache_status(self, node: str) -> CacheReport:
        """The contents of a node's cache. NOT_FOUND, NODE_OFFLINE, TIMEOUT."""

    async def prewarm(self, node: str, group: str | None = None) -> CacheReport:
        """Let a node fetch what a group, or all groups, need there; what failed is in the report."""

    async def prewarm_all(self, group: str | None = None) -> list[SyncAnswer]:
        """The same on every connected node."""

    def save_files(
        self, id: str, paths: Sequence[str], *, secret_names: bool = False
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Chosen files of an instance's working directory as a tar.gz. NODE_OFFLINE, TIMEOUT, NOT_FOUND,
        PATH_REFUSED, ARCHIVE_TOO_LARGE, SECRET_EXPOSED unless names are put in place of secrets."""

    async def walk_files(self, id: str, request: WalkRequest, *, caller: str) -> FileListing:
        """The files in an instance's directory. RATE_LIMITED, NODE_OFFLINE, TIMEOUT, NOT_FOUND, PATH_REFUSED."""

    async def look_at_file(self, id: str, path: str, *, caller: str) -> ListedFile:
        """One of them, with its digest. NODE_OFFLINE, NOT_SUPPORTED, TIMEOUT, NOT_FOUND, PATH_REFUSED."""

    async def read_file(self, id: str, path: str, *, offset: int, length: int, caller: str) -> FilePart:
        """A part of one of its files. NODE_OFFLINE, TIMEOUT, NOT_FOUND, PATH_REFUSED."""

    def open_file(
        self,
        id: str,
        path: str,
        *,
        offset: int = 0,
        length: int = 0,
        archive: bool = False,
        caller: str,
    ) -> contextlib.AbstractAsyncContextManager[OpenedFile]:
        """One of its files, as it comes, or a directory as tar.gz; see `InstanceFileTransfers.opened`."""

    @property
    def file_limits(self) -> FilesSection: ...

    def require_changeable(self, id: str, *, modes: bool = False) -> None:
        """Whether its files, or also their modes, can be changed now. NOT_FOUND, NODE_OFFLINE, NOT_SUPPORTED."""

    def require_worlds(self, node: str) -> None:
        """Whether a node has files of static instances that never ran there. NODE_OFFLINE, NOT_SUPPORTED."""

    async def change_files(
        self,
        id: str,
        change: FileChange,
        body: FileBody | None = None,
        *,
        caller: str,
        change_id: str = "",
        repeated: bool = False,
    ) -> ChangedFiles:
        """Change one of its files; see `InstanceFileTransfers.change`."""
