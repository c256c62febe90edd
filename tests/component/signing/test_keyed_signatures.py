"""Keyed signatures: made by us and by openssl, checked against the keys an operator trusts."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from corral.errors import Code, Rejected
from corral.signing import new_key, sidecar_beside, sign_keyed
from corral.signing.archive_digest import digest_of

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def pem_of(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_of(key):
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def trusting_keys(open_desk, tmp_path, *public, **section):
    root = tmp_path / "keys.pem"
    root.write_bytes(b"".join(public))
    return open_desk(trust_root=root, **{"mode": "keyed", **section})


def refusal(desk, archive, content):
    with pytest.raises(Rejected) as caught:
        desk.judge(archive, content, kind="sig")
    assert caught.value.code is Code.SIGNATURE_VERIFICATION_FAILED
    assert caught.value.hint
    return caught.value.message


def test_a_signature_by_a_new_key_is_accepted_and_names_the_key(archive, tmp_path, open_desk):
    pair = new_key()
    desk = trusting_keys(open_desk, tmp_path, pair.public_pem)
    facts = desk.judge(archive, sign_keyed(archive, pair.private_pem), kind="sig")
    assert (facts.kind, facts.key_sha256, facts.legacy) == ("sig", pair.sha256, False)


def test_the_one_of_several_trusted_keys_that_signed_is_reported(archive, tmp_path, open_desk, rsa_key):
    pairs = [new_key() for _ in range(3)]
    desk = trusting_keys(open_desk, tmp_path, public_of(rsa_key), *(pair.public_pem for pair in pairs))
    for pair in pairs:
        facts = desk.judge(archive, sign_keyed(archive, pair.private_pem), kind="sig")
        assert facts.key_sha256 == pair.sha256
    by_rsa = desk.judge(archive, sign_keyed(archive, pem_of(rsa_key)), kind="sig")
    assert by_rsa.key_sha256 not in {pair.sha256 for pair in pairs}


def test_a_key_with_a_passphrase_signs_only_with_it(archive, tmp_path, open_desk):
    pair = new_key(passphrase=b"secret")
    desk = trusting_keys(open_desk, tmp_path, pair.public_pem)
    assert desk.judge(archive, sign_keyed(archive, pair.private_pem, b"secret"), kind="sig")
    for passphrase in (None, b"wrong"):
        with pytest.raises(Rejected, match="passphrase") as caught:
            sign_keyed(archive, pair.private_pem, passphrase)
        assert caught.value.code is Code.INVALID_FIELD


def test_a_signature_by_a_key_that_is_not_trusted_is_refused(archive, tmp_path, open_desk):
    desk = trusting_keys(open_desk, tmp_path, new_key().public_pem)
    content = sign_keyed(archive, new_key().private_pem)
    assert "none of the trusted keys" in refusal(desk, archive, content)


def test_an_archive_that_was_changed_after_it_was_signed_is_refused(archive, tmp_path, open_desk):
    pair = new_key()
    desk = trusting_keys(open_desk, tmp_path, pair.public_pem)
    content = sign_keyed(archive, pair.private_pem)
    archive.write_bytes(archive.read_bytes() + b"!")
    assert "signed this archive" in refusal(desk, archive, content)


def test_an_archive_that_is_not_the_one_spoken_of_is_refused(archive, tmp_path, open_desk):
    pair = new_key()
    desk = trusting_keys(open_desk, tmp_path, pair.public_pem)
    archive.with_name("x.sig").write_bytes(sign_keyed(archive, pair.private_pem))
    sidecar = sidecar_beside(archive.with_name("x"))
    with pytest.raises(Rejected, match="not 0000"):
        desk.verifier.verify(archive, sha256="0" * 64, sidecar=sidecar)


@pytest.mark.parametrize("content", [b"", b"\n", b"not base64!", b"\xff\xfe", b"AAAA=A=="])
def test_what_is_not_base64_is_refused_with_how_to_write_it(archive, tmp_path, open_desk, content):
    desk = trusting_keys(open_desk, tmp_path, new_key().public_pem)
    assert "not base64" in refusal(desk, archive, content)


def test_a_wrapped_signature_is_read_like_one_in_a_line(archive, tmp_path, open_desk, rsa_key):
    desk = trusting_keys(open_desk, tmp_path, public_of(rsa_key))
    signature = base64.b64decode(sign_keyed(archive, pem_of(rsa_key)))
    assert desk.judge(archive, base64.encodebytes(signature).replace(b"\n", b"\r\n"), kind="sig")


def test_a_signature_with_another_hash_or_padding_is_refused(archive, tmp_path, open_desk, rsa_key):
    content = archive.read_bytes()
    curve_key = ec.generate_private_key(ec.SECP256R1())
    desk = trusting_keys(open_desk, tmp_path, public_of(rsa_key), public_of(curve_key))
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
    for signature in (
        rsa_key.sign(content, pss, hashes.SHA256()),
        rsa_key.sign(content, padding.PKCS1v15(), hashes.SHA512()),
        curve_key.sign(content, ec.ECDSA(hashes.SHA512())),
    ):
        assert "none of the trusted keys" in refusal(desk, archive, base64.b64encode(signature))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (rsa.generate_private_key(65537, 1024), "1024 bits"),
        (ec.generate_private_key(ec.SECP224R1()), "secp224r1"),
        (ec.generate_private_key(ec.SECP384R1()), "secp384r1"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
    ],
    ids=["RSA 1024", "P-224", "P-384", "Ed25519"],
)
def test_a_key_of_the_wrong_kind_or_size_is_neither_trusted_nor_signed_with(
    archive, tmp_path, open_desk, key, why
):
    with pytest.raises(Rejected, match=why) as caught:
        trusting_keys(open_desk, tmp_path, new_key().public_pem, public_of(key))
    assert caught.value.code is Code.INVALID_CONFIG
    assert "block 2" in caught.value.message
    with pytest.raises(Rejected, match=why):
        sign_keyed(archive, pem_of(key))


def test_the_cosign_mode_takes_a_sig_as_legacy_while_that_is_allowed(archive, tmp_path, open_desk):
    pair = new_key()
    content = sign_keyed(archive, pair.private_pem)
    desk = trusting_keys(open_desk, tmp_path, pair.public_pem, mode="cosign-bundle")
    assert desk.judge(archive, content, kind="sig").legacy
    strict = trusting_keys(
        open_desk, tmp_path, pair.public_pem, mode="cosign-bundle", allow_legacy_sig=False, policy="disabled"
    )
    assert "allow_legacy_sig" in refusal(strict, archive, content)


@needs_openssl
def test_openssl_accepts_what_we_signed(archive, tmp_path):
    pair = new_key()
    (tmp_path / "key.pub").write_bytes(pair.public_pem)
    (tmp_path / "raw").write_bytes(base64.b64decode(sign_keyed(archive, pair.private_pem)))
    verify = ["openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "raw", archive.name]
    said = subprocess.run(verify, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.strip() == "Verified OK"


def test_a_bundle_beside_an_archive_is_preferred_to_a_sig(archive):
    assert sidecar_beside(archive) is None
    archive.with_name(archive.name + ".sig").write_bytes(b"s")
    assert sidecar_beside(archive).kind == "sig"
    archive.with_name(archive.name + ".cosign.bundle").write_bytes(b"b")
    assert sidecar_beside(archive).kind == "cosign-bundle"


def test_a_sidecar_that_cannot_be_one_is_refused_before_it_is_read_whole(archive):
    with archive.with_name(archive.name + ".sig").open("wb") as file:
        os.truncate(file.fileno(), 10_000_000_000)
    with pytest.raises(Rejected, match="larger than"):
        sidecar_beside(archive)


def test_a_large_archive_is_hashed_without_holding_it(tmp_path):
    """In a process of its own, so that the peak is that of the hashing alone."""
    big = tmp_path / "big.zip"
    with big.open("wb") as file:
        os.truncate(file.fileno(), 128 << 20)
    program = (
        "import pathlib, resource, sys\n"
        "from corral.signing.archive_digest import digest_of\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(digest_of(pathlib.Path(sys.argv[1])).hex())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(big)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert int(said[1]) < 16_384, f"{said[1]} KiB more than before"
    assert len(said[0]) == 64


def test_the_digest_is_that_of_the_bytes(archive):
    digest = hashes.Hash(hashes.SHA256())
    digest.update(archive.read_bytes())
    assert digest_of(archive) == digest.finalize()
