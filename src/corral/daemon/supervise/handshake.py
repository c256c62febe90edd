"""Handshake and status of this node: its host, instances, runtimes and modules, as sent to the controller."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from corral.daemon.link.spool import Spool
from corral.daemon.node import host_info
from corral.daemon.supervise.supervision import Supervision
from corral.daemon.supervise.supervisor import running_instances
from corral.errors import CorralError
from corral.system.addresses import parse_host
from corral.system.clock import boot_id
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy, new_id
from corral.system.log_ring import LogPort
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.v1.module_pb2 import ModuleSetEntry
from corral.wire.v1.node_pb2 import Handshake, NodeStatus

DEFAULT_RUNTIME: Final = "process"
_MOST_MS: Final = 2**32 - 1


class NodeHandshake:
    """This host and its instances as the link reports them."""

    def __init__(
        self,
        *,
        config: DaemonConfig,
        machine_id: str,
        entropy: Entropy,
        logs: LogPort,
        supervision: Supervision,
        spool: Spool,
        modules: Callable[[], Iterable[ModuleSetEntry]] = tuple,
    ) -> None:
        self._config = config
        self._machine_id = machine_id
        self._boot_id = boot_id()
        self._run_id = new_id("run", entropy)
        self._info = host_info.host_info()
        self._sampler = host_info.StatusSampler(config.data)
        self._logs = logs
        self._supervision = supervision
        self._spool = spool
        self._modules = modules

    def handshake(self) -> Handshake:
        runtimes = self._supervision.services.runtimes
        return Handshake(
            version=VERSION,
            total_memory_mb=host_info.total_memory_mb(),
            available_cpus=host_info.usable_cpus(),
            labels=self._config.node.labels,
            running_instances=running_instances(self._supervision.supervisor, self._spool.confirmed),
            advertise_address=advertised_address(self._config),
            host_info=self._info,
            protocol_version=PROTOCOL_VERSION,
            machine_id=self._machine_id,
            boot_id=self._boot_id,
            run_id=self._run_id,
            runtimes=runtimes.names(),
            capabilities=runtimes.get(DEFAULT_RUNTIME).capabilities().names(),
            modules=self._modules(),
            worlds=self._supervision.directories.worlds(),
            static_directory=str(self._supervision.directories.static.absolute()),
            reconnect_max_ms=min(round(self._config.link.reconnect_max_seconds * 1000), _MOST_MS),
        )

    def status(self) -> NodeStatus:
        status = self._sampler.sample()
        status.instance_count = self._supervision.supervisor.live_count()
        status.used_ports.extend(self._supervision.services.ports.numbers())
        return status

    def set_log_level(self, level: str) -> None:
        self._logs.set_level(level)


def advertised_address(config: DaemonConfig) -> str:
    """As configured, else the host's name; empty where other hosts could not use that name."""
    if config.node.advertise:
        return config.node.advertise
    try:
        return parse_host(socket.gethostname())
    except CorralError:
        return ""
