"""What a host does with `modules.signing`: when it starts, when it asks for a signature, when it passes over one."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import sigstore
import structlog.testing

from corral.errors import Code, Rejected
from corral.signing import new_key, sign_keyed
from corral.testing.signing_certificates import public_pem


def refusal(opening, **section):
    with pytest.raises(Rejected) as caught:
        opening(**section)
    assert caught.value.code is Code.INVALID_CONFIG
    assert caught.value.field.startswith("modules.signing.")
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("mode", ["cosign-bundle", "keyed"])
def test_required_without_a_trust_root_does_not_start(open_desk, mode):
    assert refusal(open_desk, required=True, mode=mode).field == "modules.signing.trust_root"


def test_words_that_are_not_known_are_refused_with_those_that_are(open_desk):
    assert "cosign-bundle" in refusal(open_desk, mode="cosign").hint
    assert "require-set" in refusal(open_desk, policy="required").hint


def test_an_archive_without_a_signature_passes_only_where_none_is_required(archive, tmp_path, open_desk):
    (tmp_path / "keys.pem").write_bytes(new_key().public_pem)
    assert open_desk(mode="keyed", trust_root=tmp_path / "keys.pem").judge(archive, None) is None
    strict = open_desk(mode="keyed", trust_root=tmp_path / "keys.pem", required=True)
    with pytest.raises(Rejected, match="required is on") as caught:
        strict.judge(archive, None)
    assert caught.value.code is Code.SIGNATURE_VERIFICATION_FAILED


def test_a_signature_that_is_present_must_hold_though_none_is_required(archive, tmp_path, open_desk):
    (tmp_path / "keys.pem").write_bytes(new_key().public_pem)
    desk = open_desk(mode="keyed", trust_root=tmp_path / "keys.pem", required=False)
    with pytest.raises(Rejected, match="none of the trusted keys"):
        desk.judge(archive, sign_keyed(archive, new_key().private_pem), kind="sig")


def test_without_a_trust_root_a_signature_is_passed_over_with_a_warning(archive, open_desk):
    with structlog.testing.capture_logs() as logged:
        assert open_desk().judge(archive, b"whatever", kind="sig") is None
    assert [(record["event"], record["log_level"]) for record in logged] == [("signature.skipped", "warning")]


def test_a_legacy_signature_is_accepted_with_a_warning(archive, tmp_path, open_desk):
    pair = new_key()
    (tmp_path / "keys.pem").write_bytes(pair.public_pem)
    with structlog.testing.capture_logs() as logged:
        desk = open_desk(trust_root=tmp_path / "keys.pem")
        assert desk.judge(archive, sign_keyed(archive, pair.private_pem), kind="sig").legacy
    assert ("legacy_signature.accepted", "warning") in [
        (record["event"], record["log_level"]) for record in logged
    ]


def test_a_trusted_root_without_identities_is_opened_with_a_warning(trust_house, tmp_path, open_desk):
    with structlog.testing.capture_logs() as logged:
        open_desk(trust_root=trust_house.write_trusted_root(tmp_path / "root.json"))
    assert "any_signing_identity.accepted" in [record["event"] for record in logged]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no PEM at all",
        b"{}",
        b"{",
        b"[" * 100_000,
        b'{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}',
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        new_key().private_pem,
        new_key().public_pem + b"-----BEGIN PUBLIC KEY-----\nMFkw",
    ],
    ids=["empty", "text", "no fields", "cut", "deep", "no logs", "certificate", "key", "private", "no end"],
)
def test_a_trust_root_that_cannot_be_used_does_not_start(tmp_path, open_desk, content):
    (tmp_path / "root").write_bytes(content)
    assert (
        refusal(open_desk, mode="keyed", trust_root=tmp_path / "root").field == "modules.signing.trust_root"
    )


def test_a_trust_root_that_is_not_there_does_not_start(tmp_path, open_desk):
    assert "cannot be read" in refusal(open_desk, trust_root=tmp_path / "nowhere").message
    assert "cannot be read" in refusal(open_desk, trust_root=tmp_path).message


def test_the_keyed_mode_needs_keys(trust_house, tmp_path, open_desk):
    root = trust_house.write_trusted_root(tmp_path / "root.json")
    assert "public keys" in refusal(open_desk, mode="keyed", trust_root=root).message


def test_certificates_without_a_log_key_do_not_start_unless_logs_are_disabled(
    trust_house, tmp_path, open_desk
):
    root = trust_house.write_pem_root(tmp_path / "root.pem")
    assert refusal(open_desk, trust_root=root).field == "modules.signing.rekor.public_key"
    open_desk(trust_root=root, policy="disabled")


def test_a_log_key_must_be_a_key(trust_house, tmp_path, open_desk):
    root = trust_house.write_pem_root(tmp_path / "root.pem")
    assert refusal(open_desk, trust_root=root, log_key=root).field == "modules.signing.rekor.public_key"


def test_a_configured_log_key_takes_the_place_of_those_in_the_trusted_root(
    trust_house, archive, tmp_path, open_desk
):
    (tmp_path / "log.pem").write_bytes(public_pem(trust_house.stranger.log))
    root = trust_house.write_trusted_root(tmp_path / "root.json")
    desk = open_desk(trust_root=root, log_key=tmp_path / "log.pem")
    with pytest.raises(Rejected, match="which is not trusted"):
        desk.judge(archive, trust_house.classic(archive))


@pytest.mark.parametrize("identity", ["", " ", "dev@example.org issuer=", "dev@example.org by somebody"])
def test_an_identity_that_names_nobody_does_not_start(open_desk, identity):
    assert refusal(open_desk, identities=(identity,)).field == "modules.signing.identities"


def test_the_trusted_roots_of_the_public_sigstore_can_be_read(open_desk):
    """Those that the library ships: they name logs with Ed25519 keys too, which are passed over."""
    found = list(pathlib.Path(sigstore.__file__).parent.glob("_store/*/trusted_root.json"))
    assert found
    for path in found:
        open_desk(trust_root=path, identities=("dev@example.org",))


def test_opening_and_classic_bundles_do_not_import_the_library(trust_house, archive, tmp_path):
    program = (
        "import hashlib, pathlib, sys\n"
        "from corral.signing import Sidecar, open_verifier\n"
        "from corral.system.config_sections import SigningSection\n"
        "root, archive, bundle = map(pathlib.Path, sys.argv[1:])\n"
        "verifier = open_verifier(SigningSection(trust_root=str(root)))\n"
        "sidecar = Sidecar(kind='cosign-bundle', content=bundle.read_bytes())\n"
        "sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()\n"
        "assert verifier.verify(archive, sha256=sha256, sidecar=sidecar).identity\n"
        "assert not {'sigstore', 'pydantic', 'requests', 'tuf'} & set(sys.modules)\n"
    )
    (tmp_path / "bundle").write_bytes(trust_house.classic(archive))
    root = trust_house.write_trusted_root(tmp_path / "root.json")
    subprocess.run([sys.executable, "-c", program, root, archive, tmp_path / "bundle"], check=True)
