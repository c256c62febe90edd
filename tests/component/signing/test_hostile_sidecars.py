"""Whatever a sidecar holds, the answer is a verdict: never another error, never a long wait."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.errors import Code, Rejected
from corral.signing import SIDECAR_LIMIT, new_key

pytestmark = pytest.mark.system

FIXTURES = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def verdict(desk, archive, content, kind="cosign-bundle"):
    """The facts, or nothing for a refusal as it ought to be; any other error fails the test."""
    try:
        return desk.judge(archive, content, kind=kind)
    except Rejected as error:
        refused = error
    assert refused.code is Code.SIGNATURE_VERIFICATION_FAILED
    assert refused.message.isprintable()
    assert len(refused.message) < 1000
    return None


def places(value, path=()):
    """Every place within a JSON document."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


def replaced(document, path, value):
    if not path:
        return value
    copy = list(document) if isinstance(document, list) else dict(document)
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


def at(document, path):
    for step in path:
        document = document[step]
    return document


CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=3)
"""Where and how to change bytes; drawn without looking at them, for signatures differ in length."""


def bent(text, changes):
    """The text with some bytes of what it encodes changed; itself, where it encodes nothing."""
    try:
        raw = bytearray(base64.b64decode(text, validate=True))
    except ValueError:
        raw = bytearray()
    if not raw:
        return text[::-1] + "A"
    for place, mask in changes:
        raw[place % len(raw)] ^= mask
    return base64.b64encode(raw).decode()


@pytest.fixture(params=["classic", "newer"])
def good(request, trust_house, archive):
    """A good bundle, as a document."""
    return json.loads(getattr(trust_house, request.param)(archive))


@FIXTURES
@given(content=st.binary(max_size=300))
@pytest.mark.parametrize("kind", ["sig", "cosign-bundle"])
def test_any_bytes_are_refused(archive, trusting, kind, content):
    assert verdict(trusting, archive, content, kind) is None


@FIXTURES
@given(content=st.binary(max_size=100).map(base64.b64encode))
def test_any_base64_is_refused_as_a_keyed_signature(archive, tmp_path, open_desk, content):
    (tmp_path / "keys.pem").write_bytes(new_key().public_pem)
    desk = open_desk(mode="keyed", trust_root=tmp_path / "keys.pem")
    assert verdict(desk, archive, content, "sig") is None


@FIXTURES
@given(value=JSON)
def test_any_json_is_refused(archive, trusting, value):
    assert verdict(trusting, archive, json.dumps(value).encode()) is None


@FIXTURES
@given(place=st.integers(0, 2**16), value=JSON)
def test_a_good_bundle_with_something_else_in_one_place_gets_a_verdict(archive, trusting, good, place, value):
    found = list(places(good))
    verdict(trusting, archive, json.dumps(replaced(good, found[place % len(found)], value)).encode())


@FIXTURES
@given(place=st.integers(0, 2**16), changes=CHANGES)
def test_a_good_bundle_with_bent_bytes_gets_a_verdict(archive, trusting, good, place, changes):
    texts = [path for path in places(good) if isinstance(at(good, path), str)]
    path = texts[place % len(texts)]
    verdict(trusting, archive, json.dumps(replaced(good, path, bent(at(good, path), changes))).encode())


def test_a_certificate_with_any_one_bit_changed_is_refused(archive, trusting, good):
    """And without a warning, which would fail the test: a serial number becomes negative, say."""
    path = ("cert",) if "cert" in good else ("verificationMaterial", "certificate", "rawBytes")
    encoded = base64.b64decode(at(good, path))
    certificate = (
        x509.load_pem_x509_certificate(encoded) if "cert" in good else x509.load_der_x509_certificate(encoded)
    )
    der = certificate.public_bytes(Encoding.DER)
    for place, bit in itertools.product(range(len(der)), range(8)):
        raw = bytearray(der)
        raw[place] ^= 1 << bit
        content = base64.b64encode(as_pem(raw) if "cert" in good else raw).decode()
        assert verdict(trusting, archive, json.dumps(replaced(good, path, content)).encode()) is None


def as_pem(der):
    """By hand: what is no certificate any more can be written all the same."""
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n".encode()


@FIXTURES
@given(changes=CHANGES)
def test_a_bundle_whose_log_entry_was_bent_is_refused(archive, trusting, good, changes):
    """The body of the entry is signed by the log: not one byte of it may change."""
    path = (
        ("rekorBundle", "Payload", "body")
        if "rekorBundle" in good
        else ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody")
    )
    changed = bent(at(good, path), changes)
    if changed != at(good, path):
        assert verdict(trusting, archive, json.dumps(replaced(good, path, changed)).encode()) is None


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"mediaType":"","x":['])
def test_a_document_of_any_depth_is_refused(archive, trusting, opening):
    assert verdict(trusting, archive, opening * (SIDECAR_LIMIT // len(opening))) is None


@pytest.mark.parametrize("kind", ["sig", "cosign-bundle"])
def test_a_sidecar_over_the_limit_is_refused_unread(archive, trusting, kind):
    with pytest.raises(Rejected, match="larger than"):
        trusting.judge(archive, b"A" * (SIDECAR_LIMIT + 1), kind=kind)


def test_numbers_that_no_calendar_holds_are_refused(archive, trusting, trust_house):
    for form, path in (
        ("classic", ("rekorBundle", "Payload", "integratedTime")),
        ("newer", ("verificationMaterial", "tlogEntries", 0, "integratedTime")),
    ):
        good = json.loads(getattr(trust_house, form)(archive))
        for number in (-1, 0, 2**53, 10**18, 2**70):
            value = number if form == "classic" else str(number)
            assert verdict(trusting, archive, json.dumps(replaced(good, path, value)).encode()) is None
