"""Another signature of what is installed: taken, if it holds, without touching what runs."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Any

from module_steps import OPERATOR, audited, install, modules_of, names_of, refusal, settled, term_of
from small_modules import archive

from corral.controller.modules.installer import InstallOptions, InstallOutcome
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code
from corral.modules.archive.compatibility import Outcome
from corral.signing import KeyPair, Sidecar, new_key, sign_keyed
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually


class Signed:
    """A controller that trusts these keys, and archives that they sign."""

    def __init__(self, cluster: LocalCluster, root: pathlib.Path) -> None:
        self._cluster = cluster
        self._root = root
        self.controller: LocalController | None = None

    async def trusting(self, *keys: KeyPair) -> LocalController:
        """The same controller, after the restart that a change of keys takes."""
        self._root.write_bytes(b"".join(key.public_pem for key in keys))
        if self.controller is not None:
            await self.controller.app.stop()
        self.controller = await self._cluster.controller(
            modules__signing__required=True,
            modules__signing__mode="keyed",
            modules__signing__trust_root=str(self._root),
        )
        return self.controller


def by(key: KeyPair, path: pathlib.Path) -> Sidecar:
    return Sidecar(kind="sig", content=sign_keyed(path, key.private_pem))


def pid_of(controller: LocalController) -> Any:
    live = modules_of(controller).engine.live("small")
    return live.pid if live else None


async def started(controller: LocalController) -> Any:
    """Its process, once it is ACTIVE again: right after a restart the record still says that it was."""

    def pid() -> Any:
        return modules_of(controller).find("small").phase is ModulePhase.ACTIVE and pid_of(controller)

    return await eventually(pid, state=lambda: modules_of(controller).find("small"))


async def test_keys_are_replaced_as_the_guide_says(cluster: LocalCluster, scratch: pathlib.Path) -> None:
    old, new, stranger = new_key(), new_key(), new_key()
    path, signed = archive(scratch), Signed(cluster, scratch / "keys.pem")
    first, second = by(old, path), by(new, path)
    await install(await signed.trusting(old), path, sidecar=first)

    controller = await signed.trusting(old, new)
    pid = await started(controller)
    told, audits = await names_of(controller, "small"), await audited(controller)
    same = await install(controller, path, sidecar=first)
    assert same.outcome is InstallOutcome.UNCHANGED
    assert (await refusal(controller, path, sidecar=by(stranger, path))).code is (
        Code.SIGNATURE_VERIFICATION_FAILED
    )
    assert modules_of(controller).find("small").signature == same.record.signature
    assert await audited(controller) == audits
    report = await modules_of(controller).examine(path, sidecar=second, options=InstallOptions())
    assert (report.action, report.ok) == (Outcome.UPDATE_SIGNATURE, True)
    answer = await install(controller, path, sidecar=second)
    assert answer.outcome is InstallOutcome.SIGNATURE_UPDATED
    assert "its new signature was taken" in answer.steps[-1]
    signature = answer.record.signature
    assert signature is not None
    assert (signature.key_sha256, signature.blob) == (new.sha256, hashlib.sha256(second.content).hexdigest())
    assert (pid_of(controller), await names_of(controller, "small")) == (pid, told)  # nobody noticed
    assert await audited(controller) == [("operator", "modules.install", "small"), *audits]
    beside = controller.data / "artifacts" / f"{answer.record.sha256}.zip.sig"
    assert beside.read_bytes() == second.content
    assert await term_of(controller).store.blobs.blob_info(signature.blob) is not None
    assert (await install(controller, path, sidecar=second)).outcome is InstallOutcome.UNCHANGED

    controller = await signed.trusting(new)
    await started(controller)


async def test_what_lost_its_key_comes_back_with_another_signature(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    old, new = new_key(), new_key()
    path, signed = archive(scratch), Signed(cluster, scratch / "keys.pem")
    await install(await signed.trusting(old), path, sidecar=by(old, path))
    controller = await signed.trusting(new)
    await settled(controller, "small", ModulePhase.FAILED)
    assert modules_of(controller).find("small").reason == "signature_refused"
    assert (
        await modules_of(controller).act("small", Verb.RECOVER, actor=OPERATOR)
    ).phase is ModulePhase.FAILED
    answer = await install(controller, path, sidecar=by(new, path))
    assert (answer.outcome, answer.record.phase) == (InstallOutcome.SIGNATURE_UPDATED, ModulePhase.ACTIVE)


async def test_an_install_without_a_signature_keeps_the_one_that_is_there(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    controller, path = await cluster.controller(), archive(scratch)
    first = await install(controller, path, sidecar=by(new_key(), path))
    again = await install(controller, path, replace=True)
    assert (again.outcome, again.record.signature) == (InstallOutcome.UNCHANGED, first.record.signature)
