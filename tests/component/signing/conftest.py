"""A trust house, an archive, and verifiers that trust the house, once for all tests of signatures."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pytest

from corral.signing import Sidecar, Verifier, open_verifier
from corral.system.config_sections import RekorSection, SigningSection
from corral.testing.signing_authority import SIGNER, SigningServices


@pytest.fixture(scope="session")
def trust_house():
    return SigningServices()


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "stats-1.0.0.zip"
    path.write_bytes(b"the bytes of a module" * 500)
    return path


class Desk(NamedTuple):
    """A verifier, and the archive it is asked about."""

    verifier: Verifier

    def judge(self, archive, content, kind="cosign-bundle"):
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        sidecar = None if content is None else Sidecar(kind=kind, content=content)
        return self.verifier.verify(archive, sha256=sha256, sidecar=sidecar)


@pytest.fixture
def open_desk():
    def opened(clock=None, policy="require-set", log_key="", **section):
        rekor = RekorSection(policy=policy, public_key=str(log_key))
        named = {**section, "trust_root": str(section.get("trust_root", ""))}
        return Desk(open_verifier(SigningSection(rekor=rekor, **named), clock=clock))

    return opened


@pytest.fixture(params=["trusted root", "PEM"])
def trusting(request, trust_house, tmp_path, open_desk):
    """A desk for bundles of the house, under either kind of trust root."""
    if request.param == "trusted root":
        return open_desk(
            trust_root=trust_house.write_trusted_root(tmp_path / "root.json"), identities=(SIGNER,)
        )
    return open_desk(
        trust_root=trust_house.write_pem_root(tmp_path / "root.pem"),
        log_key=trust_house.write_log_key(tmp_path / "log.pem"),
        identities=(SIGNER,),
    )
