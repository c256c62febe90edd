"""What is saved of files that hold secrets."""

from __future__ import annotations

import io

import pytest

from corral.daemon.workload.run_secrets import RunSecrets, SecretGuard, read_run_secrets, write_run_secrets
from corral.domain.groups.secret_masks import SecretMask
from corral.errors import Code, Rejected

MASK = SecretMask({"PW": "hunter2", "PIN": "1"})


def saved(guard: SecretGuard, body: bytes, *, path: str = "a", block: int = 16) -> bytes:
    content, size = guard.content(path, io.BytesIO(body), len(body))
    parts = []
    while size > 0:
        parts.append(content.read(min(block, size)))
        size -= len(parts[-1])
    return b"".join(parts)


@pytest.mark.trap("T77")
@pytest.mark.parametrize("block", [1, 3, 7, 4096])
def test_a_value_is_met_wherever_the_blocks_are_cut(block):
    guard = SecretGuard(MASK, frozenset(), put_names=False)
    assert saved(guard, b"1" * 5000, block=block) == b"1" * 5000, "a short value is in every file"
    with pytest.raises(Rejected) as refused:
        saved(guard, b"x" * 5001 + b"hunter2" + b"y" * 5000, block=block)
    assert refused.value.code is Code.SECRET_EXPOSED
    assert "%PW%" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_names_are_put_in_place_of_values():
    guard = SecretGuard(MASK, frozenset({"filled"}), put_names=True)
    assert saved(guard, b"a hunter2 hunter2") == b"a %PW% %PW%"
    assert saved(guard, b"nothing") == b"nothing"
    assert saved(guard, b"hunter2", path="filled") == b"%PW%"
    with pytest.raises(Rejected, match="present value is not found"):
        saved(guard, b"an older one", path="filled")
    with pytest.raises(Rejected, match="present value is not found"):
        saved(SecretGuard(SecretMask(), frozenset({"filled"}), put_names=True), b"x", path="filled")


def test_what_was_filled_is_remembered_from_run_to_run_of_a_directory_that_goes_on(tmp_path):
    first, second, third, fresh = (tmp_path / "one" / str(number) for number in (1024, 1025, 1026, 2048))
    write_run_secrets(first, {"a"}, {}, earlier=False)
    write_run_secrets(second, (), {}, earlier=True)
    write_run_secrets(third, {"b"}, {}, earlier=True)
    write_run_secrets(fresh, {"c"}, {}, earlier=False)
    assert [list(read_run_secrets(run).paths) for run in (first, second, third, fresh)] == [
        ["a"],
        ["a"],
        ["a", "b"],
        ["c"],
    ]
    assert read_run_secrets(tmp_path / "nowhere") == RunSecrets()


def test_a_value_is_recognised_by_its_digest_and_stands_in_no_file(tmp_path):
    write_run_secrets(tmp_path, (), {"PW": "hunter2", "PIN": "1"}, earlier=False)
    found = read_run_secrets(tmp_path)
    assert found.unknown({"PW": "hunter2", "PIN": "1"}) == frozenset()
    assert found.unknown({"PW": "rotated", "PIN": "1"}, {"PW": "hunter2"}) == frozenset()
    assert found.unknown({"PW": "rotated"}) == {"PW", "PIN"}
    assert b"hunter2" not in (tmp_path / "secret-files.json").read_bytes()
