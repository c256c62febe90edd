"""Small contents of the cache that are written from memory."""

from __future__ import annotations

import hashlib

from corral.daemon.prepare.small_contents import LARGEST_BYTES, SmallContents


def _stored(directory, body: bytes):
    digest = hashlib.sha256(body).hexdigest()
    path = directory / digest
    path.write_bytes(body)
    return digest, path


def test_a_content_is_read_once(tmp_path):
    small = SmallContents()
    digest, path = _stored(tmp_path, b"key: value\n")
    assert small.read(digest, path) == b"key: value\n"
    path.unlink()
    assert small.read(digest, path) == b"key: value\n"


def test_a_file_with_another_content_is_not_kept(tmp_path):
    small = SmallContents()
    digest, path = _stored(tmp_path, b"key: value\n")
    path.write_bytes(b"changed\n")
    assert small.read(digest, path) is None
    path.write_bytes(b"key: value\n")
    assert small.read(digest, path) == b"key: value\n"


def test_only_small_files_are_kept(tmp_path):
    small = SmallContents()
    assert small.read(*_stored(tmp_path, b"")) == b""
    assert small.read(*_stored(tmp_path, b"x" * LARGEST_BYTES)) == b"x" * LARGEST_BYTES
    assert small.read(*_stored(tmp_path, b"x" * (LARGEST_BYTES + 1))) is None


def test_what_was_not_used_for_the_longest_time_goes_first(tmp_path):
    small = SmallContents(all_bytes=20)
    stored = [_stored(tmp_path, letter * 8) for letter in (b"a", b"b", b"c")]
    small.read(*stored[0])
    small.read(*stored[1])
    small.read(*stored[0])
    small.read(*stored[2])
    for _, path in stored:
        path.write_bytes(b"changed")
    assert small.read(*stored[0]) == b"a" * 8
    assert small.read(*stored[1]) is None
    assert small.read(*stored[2]) == b"c" * 8
