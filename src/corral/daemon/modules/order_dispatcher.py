"""Dispatches the controller's module set and orders to one worker a module; the latest order for each counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply
from corral.daemon.modules.convergence import Convergence
from corral.daemon.modules.module_archives import ArchiveCache, ArchiveDownloads
from corral.daemon.modules.module_orders import (
    OrderedPackage,
    ReceivedOrder,
    read_control,
    read_install,
    read_uninstall,
)
from corral.daemon.modules.package_store import DiskPackageStore, NodePackage
from corral.daemon.modules.package_worker import PackageWorker
from corral.daemon.modules.start_gate import StartGate
from corral.daemon.modules.state_reports import error_report, lost_archive, observed
from corral.domain.modules.convergence import difference
from corral.domain.modules.records import SIGNATURE_REFUSED
from corral.errors import Code, CorralError, Rejected
from corral.system import log_context
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy
from corral.wire.handshake_lists import read_desired
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

_ON_ITS_WAY: Final = "not as the controller wants it yet"
_log = structlog.get_logger("corral.daemon.modules")


class OrderDispatcher:
    """Receives frames; one worker per module. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        store: DiskPackageStore,
        archives: ArchiveCache,
        incoming: ArchiveDownloads,
        convergence: Convergence,
        gate: StartGate,
        entropy: Entropy,
    ) -> None:
        self._store = store
        self._archives = archives
        self._incoming = incoming
        self._convergence = convergence
        self._gate = gate
        self._entropy = entropy
        self._workers: dict[str, PackageWorker] = {}
        self._desired_archives: dict[str, str] = {}
        """By id, the digests that the present controller desires."""
        self._announced: set[str] = set()
        """Ids that differ by this session's set, and whose frames have not arrived yet."""
        self._mended: set[str] = set()
        """Digests that were fetched again in this session: once, a second copy would be the same."""
        self._send: Callable[[DaemonMessage], bool] = lambda _: False
        self._fetches = False
        self._logged_problems: dict[str, str] = {}
        self._sweeps = Tasks()
        self._sweep_again = False
        self._closed = False
        self.handlers: dict[str, Order] = {
            "module_install": self._install,
            "module_uninstall": self._uninstall,
            "module_control": self._control,
        }

    # --- the session ----------------------------------------------------------------------------
    def on_connected(self, connection: LinkConnection) -> None:
        """The ack holds the whole set. Modules it lacks are removed; modules that differ get a frame of their
        own, which the controller sends for the same difference."""
        self._send = connection.send
        self._fetches = connection.supports.bulk
        self._mended.clear()
        self._incoming.on_connected(connection)
        if not connection.supports.modules:
            return
        desired = {entry.module_id: read_desired(entry) for entry in connection.ack.modules}
        self._desired_archives = {id: module.sha256 for id, module in desired.items()}
        self._expect_nothing()
        self._gate.begin()
        for package in self._store.packages():
            if package.id not in desired:
                _log.info("module.removed", module=package.id, reason="it is not in the set of this node")
                self._submit(package.id, ReceivedOrder(gone=True))
        for id, module in desired.items():
            if difference(module, observed(self._store.package(id))):
                self._gate.expect(id, _ON_ITS_WAY)
                self._announced.add(id)
            self.mend(self._store.package(id))  # damage may be newer than the handshake
        self._sweep_soon()  # a daemon that was killed may have left archives

    def _expect_nothing(self) -> None:
        """Drop expectations of a former session, whose frames did not arrive: this session's set lists the
        differences anew."""
        for id in self._announced - self._workers.keys():
            self._gate.met(id, _ON_ITS_WAY)
        self._announced.clear()

    def on_disconnected(self) -> None:
        self._send = lambda _: False
        self._desired_archives = {}
        self._incoming.on_disconnected()

    async def close(self) -> None:
        self._closed = True
        for worker in list(self._workers.values()):
            await worker.close()
        await self._sweeps.close()

    # --- orders ---------------------------------------------------------------------------------
    def _install(self, reply: Reply, message: ControllerMessage) -> None:
        frame = message.module_install
        self._order(reply, frame.module_id, lambda: self._obtainable(frame.module_id, read_install(frame)))

    def _obtainable(self, id: str, order: ReceivedOrder) -> ReceivedOrder:
        """The order; NOT_SUPPORTED when its archive is offered by a controller without a data channel: the wait
        for it would never end."""
        package, here = order.package, self._store.package(id).record
        if package is None or package.content or self._fetches:
            return order
        if here is not None and here.sha256 == package.sha256:
            return order
        raise Rejected(
            Code.NOT_SUPPORTED,
            f"the archive of module '{id}' was offered, and this controller has no data channel to fetch it by",
            hint="send it inline in jar_bytes, up to 4 MiB, or name the feature 'data'",
            field="offer",
        )

    def _uninstall(self, reply: Reply, message: ControllerMessage) -> None:
        frame = message.module_uninstall
        self._order(reply, frame.module_id, lambda: read_uninstall(frame))

    def _control(self, reply: Reply, message: ControllerMessage) -> None:
        frame = message.module_control
        self._order(reply, frame.module_id, lambda: read_control(frame))

    def _order(self, reply: Reply, id: str, read: Callable[[], ReceivedOrder]) -> None:
        try:
            order = read()
        except CorralError as error:
            _log.warning("module_order.refused", module=id[:80], code=error.code.name, reason=str(error))
            reply(error_report(error, f"module:{id[:80]}"))
        else:
            self._remember(id, order)
            self._submit(id, msgspec.structs.replace(order, request=log_context.bound_request()))

    def _remember(self, id: str, order: ReceivedOrder) -> None:
        if order.gone:
            self._desired_archives.pop(id, None)
        elif order.package is not None:
            self._desired_archives[id] = order.package.sha256

    def _submit(self, id: str, order: ReceivedOrder) -> None:
        if self._closed:
            return
        worker = self._workers.get(id)
        if worker is None:
            worker = self._workers[id] = PackageWorker(
                id, self._convergence, entropy=self._entropy, rested=self._rested, idle=self._sweep_soon
            )
        self._gate.expect(id, _ON_ITS_WAY)
        self._logged_problems.pop(id, None)
        self._announced.discard(id)
        worker.submit(order)

    def mend(self, package: NodePackage) -> None:
        """Fetch another copy of a lost archive, if the controller still desires this very digest. A new
        signature is for the controller to send."""
        record = package.record
        if record is None or not lost_archive(record) or record.reason == SIGNATURE_REFUSED:
            return
        if self._desired_archives.get(package.id) == record.sha256 and record.sha256 not in self._mended:
            self._mended.add(record.sha256)
            order = OrderedPackage(version=record.version, sha256=record.sha256, size=record.size, mends=True)
            self._submit(package.id, ReceivedOrder(package=order))

    # --- afterwards -----------------------------------------------------------------------------
    def _rested(self, id: str, problem: CorralError | None) -> None:
        """Reports a problem once for each order: retries of the same problem are not reported again."""
        self._gate.met(id, _ON_ITS_WAY)
        if problem is None:
            self._logged_problems.pop(id, None)
        elif self._logged_problems.get(id) != problem.code.name:
            self._logged_problems[id] = problem.code.name
            _log.error("module_order.failed", module=id, code=problem.code.name, reason=str(problem))
            self._send(error_report(problem, f"module:{id}"))

    def doing(self, id: str) -> str:
        """Progress of an archive that is being fetched, also before its first bytes."""
        if id not in self._incoming.fetched:
            return ""
        fetched, size = self._incoming.fetched[id]
        return f"being fetched, {fetched} of {size or 'unknown'} bytes"

    def _sweep_soon(self) -> None:
        """Remove archives that nothing names any more, once all workers are idle."""
        if self._closed:
            return
        for id in [id for id, worker in self._workers.items() if not worker.busy]:
            del self._workers[id]
        if self._workers:
            return
        if not self._sweeps:
            self._sweeps.spawn(self._sweep(), name="modules/sweep")
        else:
            self._sweep_again = True

    async def _sweep(self) -> None:
        try:
            while True:
                self._sweep_again = False
                dropped = await self._archives.sweep(self._named)
                if dropped:
                    _log.info("module_archives.removed", archives=len(dropped))
                if not self._sweep_again:
                    return
        except Exception as error:
            _log.warning("archive_sweep.failed", reason=repr(error))

    def _named(self) -> set[str]:
        """Digests named by a record, by a refusal (it may be requested again), by a fetch under way, or by
        the controller's set whose frame is still to come."""
        packages = self._store.packages()
        named = {package.record.sha256 for package in packages if package.record is not None}
        named |= {package.refused.sha256 for package in packages if package.refused is not None}
        named |= {worker.desired_archive for worker in self._workers.values()}
        return named | {self._desired_archives.get(id, "") for id in self._announced}
