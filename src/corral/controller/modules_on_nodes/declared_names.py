"""Which events nodes may subscribe to: those that an installed module for nodes lists in its manifest.

A node's certificate is no reason to hear what happens elsewhere in the cluster; its modules are. What is never for
nodes stays here whatever a manifest lists.
"""

from __future__ import annotations

from collections.abc import Container

from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import EventType
from corral.domain.module_manifest import ModuleHost
from corral.domain.sensitive_fields import NEVER_ON_NODES


class DeclaredNames(Container[str]):
    """As of now. Who lists MODULE_EVENT hears all that modules tell, so also each name of it."""

    def __init__(self, state: ClusterState) -> None:
        manifests = (stored.record.manifest for _, stored in state.modules.items())
        self._names = frozenset(
            name
            for manifest in manifests
            if ModuleHost.DAEMON in manifest.hosts
            for name in manifest.events.subscribes
        ).difference(NEVER_ON_NODES)

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            return True
        return "/" in str(name) and EventType.MODULE_EVENT.value in self._names
