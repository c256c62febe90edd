"""What a daemon remembers: addresses, and the epoch it obeyed, on disk before it obeys."""

from __future__ import annotations

import pytest

from corral.daemon.link.backoff import Backoff
from corral.daemon.link.memory import LinkMemory
from corral.errors import Code, Rejected
from corral.system.entropy import SystemEntropy


def test_an_epoch_once_obeyed_is_never_undercut_not_even_after_a_restart(tmp_path):
    memory = LinkMemory(tmp_path, [])
    memory.obey(5)
    memory.obey(5)
    for remembering in (memory, LinkMemory(tmp_path, [])):
        with pytest.raises(Rejected) as caught:
            remembering.obey(4)
        assert caught.value.code is Code.STALE_EPOCH
        assert "raise-epoch" in str(caught.value)
        assert remembering.epoch == 5


def test_learned_addresses_are_remembered_beside_the_configured_ones(tmp_path):
    LinkMemory(tmp_path, ["a:1"]).learn(["b:2", "a:1", "", "c:3"])
    assert LinkMemory(tmp_path, ["a:1"]).addresses == ("a:1", "b:2", "c:3")
    assert LinkMemory(tmp_path, ["z:9"]).addresses == ("z:9", "b:2", "a:1", "c:3")


def test_a_controller_cannot_fill_the_disk_with_addresses(tmp_path):
    memory = LinkMemory(tmp_path, [])
    memory.learn(f"host-{index}:1" for index in range(100_000))
    assert len(memory.addresses) == 32


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"format":"corral-link","version":99,"value":{}}', b"\xff"]
)
def test_a_damaged_or_newer_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "link.json").write_bytes(content)
    with pytest.raises(Rejected) as caught:
        LinkMemory(tmp_path, [])
    assert caught.value.code in (Code.FORMAT_INVALID, Code.FORMAT_TOO_NEW)
    assert "link.json" in caught.value.message
    assert (tmp_path / "link.json").read_bytes() == content


def test_pauses_double_to_their_bound_and_are_spread_by_a_quarter():
    backoff = Backoff(longest=15, entropy=SystemEntropy())
    pauses = [backoff.delay() for _ in range(8)]
    for pause, nominal in zip(pauses, [1, 2, 4, 8, 15, 15, 15, 15], strict=True):
        assert nominal * 0.75 <= pause <= nominal * 1.25
    backoff.reset()
    assert backoff.delay() <= 1.25
