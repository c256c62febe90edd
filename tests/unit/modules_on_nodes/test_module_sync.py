"""The sync of one session's modules, against a node that obeys, refuses and comes back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from package_records import NOW, ONE, TWO, package

from corral.controller.modules_on_nodes.distributor import desired_on_nodes
from corral.controller.modules_on_nodes.module_sync import DesiredPackage, ModuleSync, SyncProgress
from corral.controller.modules_on_nodes.order_frames import BlobCache
from corral.domain.ids import NodeId, SessionId
from corral.domain.modules.convergence import ObservedModule, difference
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import NodeModuleState, PackageRecord, SignatureFacts
from corral.wire.features import FEATURES, support_of
from corral.wire.handshake_lists import read_intent
from corral.wire.v1.link_pb2 import ControllerMessage

SIGNED = "a" * 64
replace = msgspec.structs.replace


class Blobs:
    """Every archive is small, and its content its digest."""

    async def read_blob(self, digest: str) -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        yield digest.encode()


class Facts:
    id = SessionId("ses-1")
    node_id = NodeId("n1")
    supports = support_of(FEATURES)


class Link:
    """A session whose frames wait until the node takes them."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.outbox: Any = self
        self.waiting_bytes = 0
        self.over = asyncio.Event()
        self.frames: list[ControllerMessage] = []

    def send(self, message: ControllerMessage, /) -> bool:
        self.frames.append(message)
        return True


class Node:
    """One module of a node, as it obeys its orders. Archives in `broken` do not come up there."""

    def __init__(self) -> None:
        self.has: ObservedModule | None = None
        self.broken: set[str] = set()

    def obey(self, message: ControllerMessage) -> NodeModuleState | None:
        """What it reports; None: nothing is left of the module."""
        if message.HasField("module_uninstall"):
            self.has = None
        elif message.HasField("module_install"):
            self._install(message.module_install)
        elif self.has is not None:
            self._follow(message.module_control, message.module_control.reason)
        return _report(self.has) if self.has else None

    def _install(self, order: Any) -> None:
        had = self.has or ObservedModule(
            id=order.module_id,
            paused_reason="",
            signature_sha256="",
            refused_signature_sha256="",
            reload_ms=0,
        )
        signature = SIGNED if order.signature_bytes else ""
        if had.sha256 != order.sha256 and order.sha256 in self.broken:
            self._refuse(had, order, signature)
            return
        self.has = replace(had, sha256=order.sha256, version=order.version, signature_sha256=signature)
        if had.sha256 != order.sha256:
            self.has = replace(self.has, refused_sha256="", refused_signature_sha256="")
        self._follow(order, order.paused_reason)

    def _refuse(self, had: ObservedModule, order: Any, signature: str) -> None:
        """What runs stops where it shall not run, and has no part in the rest."""
        self.has = replace(
            had,
            refused_sha256=order.sha256,
            refused_signature_sha256=signature,
            recover_ms=max(had.recover_ms, order.recover_ms),
        )
        intent = read_intent(order.intent)
        if had.sha256 and intent is not ModuleIntent.ACTIVE:
            self.has = replace(self.has, intent=intent, paused_reason=order.paused_reason)

    def _follow(self, order: Any, reason: str) -> None:
        assert self.has is not None
        given = hashlib.sha256(order.settings_json).hexdigest() if order.settings_json else ""
        self.has = replace(
            self.has,
            intent=read_intent(order.intent),
            paused_reason=reason,
            settings_sha256=given or self.has.settings_sha256,
            reload_ms=max(self.has.reload_ms or 0, order.reload_ms),
            recover_ms=max(self.has.recover_ms, order.recover_ms),
        )


def _report(has: ObservedModule) -> NodeModuleState:
    return NodeModuleState(
        node=Facts.node_id,
        module=has.id,
        phase=ModulePhase.ACTIVE,
        version=has.version,
        sha256=has.sha256,
        intent=has.intent or ModuleIntent.ACTIVE,
        refused_sha256=has.refused_sha256,
        recover_done_ms=has.recover_ms,
        reload_done_ms=has.reload_ms,
        updated_at=NOW,
    )


class World:
    """What is desired, the node, and the session between them."""

    def __init__(self) -> None:
        self.record: PackageRecord | None = None
        self.recover_ms = 0
        self.moments = 0
        self.node = Node()
        self.reports: list[NodeModuleState] = []

    def begin(self) -> None:
        listed = {self.node.has.id: self.node.has} if self.node.has else {}
        self.link, self.reports = Link(), []
        self.sync = ModuleSync(
            self.link,
            observed=listed,
            find=lambda _: self.part,
            blobs=BlobCache(Blobs()),
            progress=SyncProgress(),
        )
        self.sync.changed(["small"])
        self.running = asyncio.create_task(self.sync.run(), name="test/sync")

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    @property
    def part(self) -> DesiredPackage | None:
        desired = desired_on_nodes(self.record) if self.record else None
        if self.record is None or desired is None:
            return None
        return DesiredPackage(record=self.record, desired=replace(desired, recover_ms=self.recover_ms))

    def desire(self, **changes: Any) -> None:
        self.record = package(**changes) if self.record is None else replace(self.record, **changes)
        self.sync.changed(["small"])

    def do(self, step: str, value: Any) -> None:
        self.moments += 1
        match step:
            case "install":
                self.desire(sha256=value, version="1.0.0" if value == ONE else "2.0.0")
            case "uninstall":
                self.record, self.recover_ms = None, 0
                self.sync.changed(["small"])
            case "intent" if self.record:
                reason = str(self.moments) if value is ModuleIntent.PAUSED else ""
                self.desire(intent=value, paused_reason=reason)
            case "settings" if self.record:
                self.desire(settings={"word": value})
            case "sign" if self.record:
                self.desire(signature=SignatureFacts(kind="sig", blob=SIGNED))
            case "reload" if self.record:
                self.desire(reload_asked_ms=self.moments)
            case "recover" if self.record:
                self.recover_ms = self.moments
                self.sync.changed(["small"])
            case "break":
                self.node.broken = {value}
            case "obey" if self.link.frames:
                report = self.node.obey(self.link.frames.pop(0))
                if report is not None:
                    self.reports.append(report)
            case "report" if self.reports:
                self.sync.report(self.reports.pop(0))

    async def settle(self) -> None:
        """Until the node has obeyed every order, and each report is known."""
        quiet = 0
        while quiet < 20:
            await asyncio.sleep(0)
            quiet = 0 if self.link.frames or self.reports else quiet + 1
            self.do("obey", None)
            self.do("report", None)


_steps = st.one_of(
    st.tuples(st.just("install"), st.sampled_from([ONE, TWO])),
    st.tuples(st.just("intent"), st.sampled_from(list(ModuleIntent))),
    st.tuples(st.just("settings"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("break"), st.sampled_from([ONE, TWO, ""])),
    st.tuples(st.sampled_from(["uninstall", "sign", "reload", "recover", "obey", "report"]), st.none()),
    st.tuples(st.sampled_from(["turn", "reconnect"]), st.none()),
)


@settings(deadline=None)
@given(steps=st.lists(_steps, max_size=30))
def test_a_node_comes_to_what_is_desired_whatever_happens_and_a_reconnect_then_sends_nothing(steps):
    async def scenario() -> None:
        world = World()
        world.begin()
        for step, value in steps:
            if step == "turn":
                await asyncio.sleep(0)
            elif step == "reconnect":
                await world.end()
                world.begin()
            else:
                world.do(step, value)
        await world.settle()
        desired = world.part.desired if world.part else None
        assert difference(desired, world.node.has) == ()
        await world.end()
        world.begin()
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.link.frames == []
        await world.end()

    asyncio.run(scenario())
