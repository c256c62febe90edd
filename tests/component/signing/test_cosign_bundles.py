"""Bundles of both formats, under both kinds of trust root: each thing that may be wrong is refused."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from corral.errors import Code, Rejected
from corral.signing.bundle_check import check_with_library
from corral.signing.certificate_check import AcceptedSigner, check_identity
from corral.testing.signing_authority import ISSUER, SIGNER, SigningServices, Wrong
from corral.testing.signing_certificates import certificate_pem, issue_authority, public_pem
from corral.testing.stepped_clock import SteppedClock

REFUSALS = {
    Wrong.FOREIGN_ROOT: "does not lead to the trust root",
    Wrong.EXPIRED_CERTIFICATE: "its certificate was valid from",
    Wrong.EARLY_ENTRY: "its certificate was valid from",
    Wrong.WRONG_IDENTITY: "signed by mallory@example.org",
    Wrong.NOT_FOR_CODE: "not meant for signing code",
    Wrong.WEAK_KEY: "secp224r1",
    Wrong.ANOTHER_SIGNATURE: "key did not sign this archive",
    Wrong.ENTRY_OF_ANOTHER_DIGEST: "not about this archive",
    Wrong.ENTRY_BY_ANOTHER_KEY: "names another key or certificate",
    Wrong.ENTRY_WITH_ANOTHER_SIGNATURE: "holds another signature",
    Wrong.ENTRY_OF_ANOTHER_KIND: "hashedrekord 0.0.1 is expected",
    Wrong.SET_BY_ANOTHER_KEY: "not made by the log's key",
    Wrong.SET_OF_ANOTHER_TIME: "not made by the log's key",
    Wrong.FOREIGN_LOG: "which is not trusted",
    Wrong.MISSING_SET: "no signed entry timestamp",
    Wrong.MISSING_ENTRY: "no entry of a transparency log",
}
UNDER_TRUSTED_ROOT = {
    Wrong.MISSING_TIMESTAMP: "carries no certificate timestamp",
    Wrong.FOREIGN_TIMESTAMP: "by a trusted log",
}
BY_THE_LIBRARY = {
    Wrong.WRONG_INCLUSION: "invalid root hash",
    Wrong.WRONG_CHECKPOINT: "checkpoint: invalid signature",
}
LIBRARY_BLIND = {Wrong.WEAK_KEY}
"""It takes a key on any curve."""
FORMATS = ["classic", "newer"]


def bundle_of(house, form, archive, wrong=Wrong.NOTHING):
    return getattr(house, form)(archive, wrong)


def refusal(desk, archive, content):
    with pytest.raises(Rejected) as caught:
        desk.judge(archive, content)
    assert caught.value.code is Code.SIGNATURE_VERIFICATION_FAILED
    assert caught.value.hint
    return caught.value.message


@pytest.fixture
def rooted(trust_house, tmp_path, open_desk):
    return open_desk(trust_root=trust_house.write_trusted_root(tmp_path / "r.json"), identities=(SIGNER,))


@pytest.mark.parametrize("form", FORMATS)
def test_a_bundle_of_an_accepted_signer_is_accepted(trusting, trust_house, archive, form):
    facts = trusting.judge(archive, bundle_of(trust_house, form, archive))
    assert (facts.kind, facts.identity, facts.legacy) == ("cosign-bundle", SIGNER, False)
    assert len(facts.key_sha256) == 64


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("wrong", REFUSALS, ids=lambda wrong: wrong.name)
def test_whatever_is_wrong_with_a_bundle_is_refused_by_name(trusting, trust_house, archive, form, wrong):
    message = refusal(trusting, archive, bundle_of(trust_house, form, archive, wrong))
    assert REFUSALS[wrong] in message


@pytest.mark.parametrize(
    ("form", "why"), [("classic", "did not sign this archive"), ("newer", "about another archive")]
)
def test_a_bundle_does_not_fit_an_archive_that_was_changed(trusting, trust_house, archive, form, why):
    content = bundle_of(trust_house, form, archive)
    archive.write_bytes(archive.read_bytes()[:-1] + b"?")
    assert why in refusal(trusting, archive, content)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("wrong", UNDER_TRUSTED_ROOT, ids=lambda wrong: wrong.name)
def test_certificate_timestamps_are_demanded_where_the_trust_root_names_a_log(
    rooted, trust_house, archive, form, wrong
):
    message = refusal(rooted, archive, bundle_of(trust_house, form, archive, wrong))
    assert UNDER_TRUSTED_ROOT[wrong] in message


@pytest.mark.parametrize("form", FORMATS)
def test_pem_certificates_name_no_certificate_log_so_timestamps_are_not_asked_for(
    trust_house, archive, tmp_path, open_desk, form
):
    desk = open_desk(
        trust_root=trust_house.write_pem_root(tmp_path / "root.pem"),
        log_key=trust_house.write_log_key(tmp_path / "log.pem"),
    )
    assert desk.judge(archive, bundle_of(trust_house, form, archive, Wrong.MISSING_TIMESTAMP))


@pytest.mark.parametrize("wrong", BY_THE_LIBRARY, ids=lambda wrong: wrong.name)
def test_the_library_checks_the_proof_of_inclusion(rooted, trust_house, archive, wrong):
    message = refusal(rooted, archive, trust_house.newer(archive, wrong))
    assert "the sigstore library says" in message
    assert BY_THE_LIBRARY[wrong] in message


@pytest.mark.parametrize(
    "wrong", [wrong for wrong in Wrong if wrong not in LIBRARY_BLIND], ids=lambda wrong: wrong.name
)
def test_the_library_by_itself_comes_to_the_same_verdicts(trust_house, archive, tmp_path, wrong):
    """Our checks run first; this shows that the second opinion is one, and not an echo."""

    def judge():
        check_with_library(
            trust_house.newer(archive, wrong),
            digest=hashlib.sha256(archive.read_bytes()).digest(),
            document=trust_house.write_trusted_root(tmp_path / "root.json").read_bytes(),
            identify=lambda found: check_identity(found, [AcceptedSigner(name=SIGNER, issuer=ISSUER)]),
        )

    if wrong is Wrong.NOTHING:
        judge()
    else:
        with pytest.raises(Rejected) as caught:
            judge()
        assert caught.value.code is Code.SIGNATURE_VERIFICATION_FAILED


@pytest.mark.parametrize("form", FORMATS)
def test_a_signature_stays_good_after_its_certificate_has_expired(
    trust_house, archive, tmp_path, open_desk, form
):
    clock = SteppedClock()
    clock.step(2 * 365 * 86_400)
    desk = open_desk(clock=clock, trust_root=trust_house.write_trusted_root(tmp_path / "root.json"))
    assert desk.judge(archive, bundle_of(trust_house, form, archive))


@pytest.mark.parametrize(
    ("identity", "accepted"),
    [
        (SIGNER, True),
        (f"{SIGNER} issuer={ISSUER}", True),
        (f"{SIGNER} issuer=https://elsewhere.example.org", False),
        ("DEV@example.org", False),
        ("example.org", False),
        ("dev@example", False),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_signer_is_accepted_by_the_exact_name_and_issuer(
    trust_house, archive, tmp_path, open_desk, form, identity, accepted
):
    desk = open_desk(
        trust_root=trust_house.write_trusted_root(tmp_path / "root.json"),
        identities=("other@example.org", identity),
    )
    content = bundle_of(trust_house, form, archive)
    if accepted:
        assert desk.judge(archive, content).identity == SIGNER
    else:
        assert "who is not accepted" in refusal(desk, archive, content)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("wrong", [Wrong.MISSING_SET, Wrong.MISSING_ENTRY], ids=lambda wrong: wrong.name)
def test_without_a_log_a_certificate_must_be_valid_now(
    trust_house, archive, tmp_path, open_desk, form, wrong
):
    clock = SteppedClock()
    root = trust_house.write_pem_root(tmp_path / "root.pem")
    desk = open_desk(clock=clock, policy="disabled", trust_root=root)
    content = bundle_of(trust_house.at(clock.now()), form, archive, wrong)
    assert desk.judge(archive, content).identity == SIGNER
    clock.step(3600)
    assert "its certificate was valid from" in refusal(desk, archive, content)


@pytest.mark.parametrize("form", FORMATS)
def test_a_disabled_policy_still_refuses_an_entry_about_something_else(
    trust_house, archive, tmp_path, open_desk, form
):
    desk = open_desk(policy="disabled", trust_root=trust_house.write_pem_root(tmp_path / "root.pem"))
    content = bundle_of(trust_house, form, archive, Wrong.ENTRY_OF_ANOTHER_DIGEST)
    assert "not about this archive" in refusal(desk, archive, content)


@pytest.mark.parametrize("form", FORMATS)
def test_a_disabled_policy_uses_an_entry_that_it_can_check(trust_house, archive, tmp_path, open_desk, form):
    clock = SteppedClock()
    clock.step(365 * 86_400)
    desk = open_desk(
        clock=clock,
        policy="disabled",
        trust_root=trust_house.write_pem_root(tmp_path / "root.pem"),
        log_key=trust_house.write_log_key(tmp_path / "log.pem"),
    )
    assert desk.judge(archive, bundle_of(trust_house, form, archive))
    forged = bundle_of(trust_house, form, archive, Wrong.SET_BY_ANOTHER_KEY)
    assert "not made by the log's key" in refusal(desk, archive, forged)


@pytest.mark.parametrize("form", ["classic_by_key", "newer_by_key"])
@pytest.mark.parametrize("mode", ["keyed", "cosign-bundle"])
def test_a_bundle_made_with_a_key_needs_that_key_in_the_trust_root(
    trust_house, archive, tmp_path, open_desk, form, mode
):
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "keys.pem").write_bytes(public_pem(key))
    log_key = trust_house.write_log_key(tmp_path / "log.pem")
    desk = open_desk(mode=mode, trust_root=tmp_path / "keys.pem", log_key=log_key)
    facts = desk.judge(archive, getattr(trust_house, form)(archive, key))
    assert (facts.kind, facts.identity) == ("cosign-bundle", "")
    stranger = getattr(trust_house, form)(archive, ec.generate_private_key(ec.SECP256R1()))
    assert "no trusted public key" in refusal(desk, archive, stranger)
    for wrong in (
        Wrong.ENTRY_OF_ANOTHER_DIGEST,
        Wrong.ENTRY_BY_ANOTHER_KEY,
        Wrong.SET_BY_ANOTHER_KEY,
        Wrong.MISSING_SET,
    ):
        content = getattr(trust_house, form)(archive, key, wrong)
        assert REFUSALS[wrong] in refusal(desk, archive, content)


def test_a_bundle_that_names_another_key_than_the_one_that_signed_is_refused(
    trust_house, archive, tmp_path, open_desk
):
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    (tmp_path / "keys.pem").write_bytes(b"".join(map(public_pem, keys)))
    desk = open_desk(
        trust_root=tmp_path / "keys.pem", log_key=trust_house.write_log_key(tmp_path / "log.pem")
    )
    bundle = json.loads(trust_house.classic_by_key(archive, keys[0]))
    assert desk.judge(archive, json.dumps({**bundle, "cert": ""}).encode())
    bundle["cert"] = base64.b64encode(public_pem(keys[1])).decode()
    assert "it names key" in refusal(desk, archive, json.dumps(bundle).encode())


def test_the_keyed_mode_takes_certificates_too_where_the_trust_root_holds_them(
    trust_house, archive, tmp_path, open_desk
):
    key = ec.generate_private_key(ec.SECP256R1())
    root = trust_house.write_pem_root(tmp_path / "both.pem")
    root.write_bytes(root.read_bytes() + public_pem(key))
    log_key = trust_house.write_log_key(tmp_path / "log.pem")
    desk = open_desk(mode="keyed", trust_root=root, log_key=log_key)
    assert desk.judge(archive, trust_house.classic(archive)).identity == SIGNER
    assert desk.judge(archive, trust_house.classic_by_key(archive, key)).identity == ""


def test_an_intermediate_that_comes_with_the_bundle_may_link_but_not_anchor(
    trust_house, archive, tmp_path, open_desk
):
    def with_chain(house):
        bundle = json.loads(house.classic(archive))
        leaf = base64.b64decode(bundle["cert"])
        chain = (
            leaf + certificate_pem(house.intermediate.certificate) + certificate_pem(house.root.certificate)
        )
        return json.dumps({**bundle, "cert": base64.b64encode(chain).decode()}).encode()

    (tmp_path / "root.pem").write_bytes(certificate_pem(trust_house.root.certificate))
    log = tmp_path / "logs.pem"
    log.write_bytes(public_pem(trust_house.log) + public_pem(trust_house.stranger.log))
    desk = open_desk(trust_root=tmp_path / "root.pem", log_key=log)
    assert desk.judge(archive, with_chain(trust_house))
    assert "does not lead" in refusal(desk, archive, trust_house.classic(archive))
    assert "does not lead" in refusal(desk, archive, with_chain(trust_house.stranger))


@pytest.mark.parametrize("part", ["tlogs", "certificateAuthorities", "ctlogs"])
def test_what_was_trusted_at_another_time_does_not_count(trust_house, archive, tmp_path, open_desk, part):
    root = trust_house.write_trusted_root(tmp_path / "root.json")
    document = json.loads(root.read_text())
    holder = document[part][0]
    window = holder.get("publicKey", holder)
    long_ago = trust_house.signed_at - dt.timedelta(days=1)
    window["validFor"]["end"] = long_ago.strftime("%Y-%m-%dT%H:%M:%SZ")
    root.write_text(json.dumps(document))
    assert refusal(open_desk(trust_root=root), archive, trust_house.classic(archive))


def test_an_expired_intermediate_authority_is_refused(trust_house, archive, tmp_path, open_desk):
    old = SigningServices(signed_at=trust_house.signed_at)
    old.intermediate = issue_authority("old", old.root, at=old.signed_at - dt.timedelta(days=40 * 365))
    desk = open_desk(
        trust_root=old.write_pem_root(tmp_path / "root.pem"), log_key=old.write_log_key(tmp_path / "log.pem")
    )
    assert "does not lead" in refusal(desk, archive, old.classic(archive))


def test_an_attestation_is_not_a_signature_of_the_archive(trusting, trust_house, archive):
    bundle = json.loads(trust_house.newer(archive))
    del bundle["messageSignature"]
    bundle["dsseEnvelope"] = {"payload": "e30=", "payloadType": "x", "signatures": [{"sig": "AA=="}]}
    assert "attestation" in refusal(trusting, archive, json.dumps(bundle).encode())
