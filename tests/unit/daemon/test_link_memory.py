"""What a daemon remembers: addresses, and the epoch it obeyed, on disk before it obeys."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest

from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import Code, Rejected, Retryable
from corral.testing.small_disk import small_disk


def test_an_epoch_once_obeyed_is_never_undercut_not_even_after_a_restart(tmp_path):
    memory = KnownControllers(tmp_path, [])
    memory.obey(5)
    memory.obey(5)
    for remembering in (memory, KnownControllers(tmp_path, [])):
        with pytest.raises(Rejected) as caught:
            remembering.obey(4)
        assert caught.value.code is Code.STALE_EPOCH
        assert "raise-epoch" in str(caught.value)
        assert remembering.epoch == 5


def test_learned_addresses_are_remembered_beside_the_configured_ones(tmp_path):
    KnownControllers(tmp_path, ["a:1"]).learn(["b:2", "a:1", "", "c:3"])
    assert KnownControllers(tmp_path, ["a:1"]).addresses == ("a:1", "b:2", "c:3")
    assert KnownControllers(tmp_path, ["z:9"]).addresses == ("z:9", "b:2", "a:1", "c:3")


def test_a_controller_cannot_fill_the_disk_with_addresses(tmp_path):
    memory = KnownControllers(tmp_path, [])
    memory.learn(f"host-{index}:1" for index in range(100_000))
    assert len(memory.addresses) == 32


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"format":"corral-link","version":99,"value":{}}', b"\xff"]
)
def test_a_damaged_or_newer_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "link.json").write_bytes(content)
    with pytest.raises(Rejected) as caught:
        KnownControllers(tmp_path, [])
    assert caught.value.code in (Code.FORMAT_INVALID, Code.FORMAT_TOO_NEW)
    assert "link.json" in caught.value.message
    assert (tmp_path / "link.json").read_bytes() == content


@contextlib.contextmanager
def unwritable(data: pathlib.Path):
    """A disk that takes no new file under the name that the next write needs, and has no room left for it."""
    in_the_way = data / f".link.json.{os.getpid()}.tmp"
    in_the_way.mkdir()
    (data / ".link.room").unlink()
    yield
    in_the_way.rmdir()


def test_an_epoch_that_cannot_be_remembered_is_not_obeyed_until_it_can(tmp_path):
    memory = KnownControllers(tmp_path, [])
    memory.obey(5)
    with unwritable(tmp_path):
        for _ in range(2):
            with pytest.raises(Retryable) as caught:
                memory.obey(6)
            assert caught.value.code is Code.STORE_UNAVAILABLE
            assert "link.json" in caught.value.message
        assert memory.epoch == 5
        memory.obey(5)
    memory.obey(6)
    assert KnownControllers(tmp_path, []).epoch == 6


def test_new_leaders_are_obeyed_and_remembered_on_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", size="256k") as disk:
        memory = KnownControllers(disk, [])
        memory.obey(5)
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
        for epoch in (6, 7, 8):
            memory.obey(epoch)
            assert KnownControllers(disk, []).epoch == epoch


def test_addresses_that_cannot_be_written_are_used_and_written_at_the_next_occasion(tmp_path):
    memory = KnownControllers(tmp_path, [])
    with unwritable(tmp_path):
        memory.learn(["a:1"])
        with pytest.raises(Retryable):
            memory.remember(["a:1"])
        assert memory.addresses == ("a:1",)
    assert KnownControllers(tmp_path, []).addresses == ()
    memory.learn(["a:1"])
    assert KnownControllers(tmp_path, []).addresses == ("a:1",)
