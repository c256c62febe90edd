"""When a certificate is renewed, whatever the clocks say."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.daemon.link.renewal import seconds_to_renewal
from corral.domain.ids import ClusterId, NodeId
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey, new_key
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy

HOUR = 3600.0
DAY = 24 * HOUR


def certificate(life: float) -> tuple[bytes, dt.datetime]:
    """A certificate of so many seconds, and when it was issued."""
    clock, entropy, cluster = SystemClock(), SystemEntropy(), ClusterId("c")
    key = ClusterKey(entropy.secret(32))
    sealed = Authority.create(cluster=cluster, cluster_key=key, clock=clock, entropy=entropy)
    authority = Authority.open(sealed, cluster=cluster, cluster_key=key, clock=clock)
    issued = authority.issue_node(NodeId("n1"), new_key().public_key(), life=dt.timedelta(seconds=life))
    return issued.certificate_pem, issued.not_after - dt.timedelta(seconds=life)


def left(life: float, *, wall: float, in_use: float = 0.0, since_renewal: float | None = None) -> float:
    pem, issued = certificate(life)
    now = issued + dt.timedelta(seconds=wall)
    return seconds_to_renewal(pem, now=now, in_use=in_use, since_renewal=since_renewal)


def test_a_certificate_is_due_two_thirds_into_its_life():
    assert left(30 * DAY, wall=5 * DAY) == pytest.approx(15 * DAY, abs=2)
    assert left(30 * DAY, wall=20 * DAY + 2) == 0
    assert left(6, wall=1) == pytest.approx(3, abs=1)


def test_a_clock_that_is_behind_does_not_let_a_certificate_expire():
    assert left(30 * DAY, wall=-1000 * DAY, in_use=5 * DAY) == pytest.approx(15 * DAY, abs=2)
    assert left(30 * DAY, wall=-1000 * DAY, in_use=20 * DAY + 2) == 0


def test_a_clock_that_is_ahead_does_not_make_us_renew_without_end():
    assert left(30 * DAY, wall=1000 * DAY) == 0
    assert left(30 * DAY, wall=1000 * DAY, since_renewal=0) == HOUR
    assert left(30 * DAY, wall=1000 * DAY, since_renewal=HOUR - 10) == 10
    assert left(30 * DAY, wall=1000 * DAY, since_renewal=HOUR) == 0


def test_short_lived_certificates_are_renewed_before_they_expire():
    assert left(6, wall=1000, since_renewal=0) == pytest.approx(2, abs=1)
    assert left(6, wall=5, in_use=5, since_renewal=5) == 0
