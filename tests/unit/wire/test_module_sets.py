"""The modules of a node as a handshake lists them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.modules.convergence import DesiredModule, ObservedModule
from corral.domain.modules.phases import ModuleIntent
from corral.wire.handshake_lists import (
    MOST_ENTRIES,
    desired_entry,
    entries_of,
    observed_entry,
    read_desired,
    read_observed,
)
from corral.wire.v1.module_pb2 import ModuleSetEntry

_digests = st.sampled_from(["", "1" * 64, "2" * 64])
_moments = st.integers(0, 2**62)


@given(
    desired=st.builds(
        DesiredModule,
        id=st.just("small"),
        intent=st.none() | st.sampled_from(ModuleIntent),
        paused_reason=st.none() | st.text(max_size=500),
        settings_sha256=_digests,
        signature_sha256=_digests,
        reload_ms=_moments,
        recover_ms=_moments,
    )
)
def test_what_a_node_shall_have_arrives_as_it_was_sent(desired):
    assert read_desired(ModuleSetEntry.FromString(desired_entry(desired).SerializeToString())) == desired


@given(
    observed=st.builds(
        ObservedModule,
        id=st.just("small"),
        sha256=_digests,
        version=st.text(max_size=100),
        intent=st.none() | st.sampled_from(ModuleIntent),
        paused_reason=st.none() | st.text(max_size=500),
        settings_sha256=_digests,
        refused_sha256=_digests,
        signature_sha256=st.none() | _digests,
        refused_signature_sha256=st.none() | _digests,
        reload_ms=st.none() | _moments,
        recover_ms=_moments,
    )
)
def test_what_a_node_has_arrives_as_it_was_sent(observed):
    assert read_observed(ModuleSetEntry.FromString(observed_entry(observed).SerializeToString())) == observed


def test_what_an_older_daemon_does_not_list_is_not_known():
    listed = read_observed(ModuleSetEntry(module_id="small"))
    assert listed == ObservedModule(id="small")
    assert (listed.paused_reason, listed.reload_ms, listed.signature_sha256) == (None, None, None)
    assert read_desired(ModuleSetEntry(module_id="small")).paused_reason is None


def test_nonsense_is_read_within_bounds():
    odd = ModuleSetEntry(
        module_id="small", sha256="nonsense", intent=77, version="v" * 1000, paused_reason="r" * 9000
    )
    read = read_observed(odd)
    assert (read.sha256, read.intent, len(read.version)) == ("", None, 100)
    assert len(read.paused_reason or "") == 500
    names = ["", "UPPER", "a/b", "x" * 64, "ok"]
    assert list(entries_of(ModuleSetEntry(module_id=name) for name in names)) == ["ok"]
    many = (ModuleSetEntry(module_id=f"m{number}") for number in range(MOST_ENTRIES + 5))
    assert len(entries_of(many)) == MOST_ENTRIES
