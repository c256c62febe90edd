"""Archives and manifests from outside: taken apart, checked, and never unpacked where they say."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zipfile

import pytest

from corral.daemon.cache.template_archive import ArchiveUnpack, check_manifest, read_manifest
from corral.domain.templates import PIECE, TemplateFile, TemplateManifest, encode_manifest
from corral.errors import Code, Rejected

DIGEST = hashlib.sha256(b"x").hexdigest()


def tar(*entries: tuple[str, bytes], **facts) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in facts.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return held.getvalue()


@pytest.fixture
def unpack(scratch):
    kept: dict[str, bytes] = {}

    def keep(part, digest):
        kept[digest] = part.read_bytes()

    def run(archive: bytes, limit: int = 10**9) -> tuple[TemplateManifest, dict[str, bytes]]:
        manifest = ArchiveUnpack(name="lobby", parts=scratch, keep=keep, limit=limit).run(archive)
        return manifest, kept

    yield run
    assert list(scratch.iterdir()) == [], "nothing lies about afterwards"


def refused(run, *args, **more) -> Rejected:
    with pytest.raises(Rejected) as caught:
        run(*args, **more)
    return caught.value


def test_files_get_their_digests_pieces_and_modes(unpack):
    large = os.urandom(PIECE + 10)
    manifest, kept = unpack(tar(("b/large", large), ("a", b"x"), mode=0o750))
    assert [file.path for file in manifest.files] == ["a", "b/large"]
    assert [file.mode for file in manifest.files] == [0o755, 0o755]
    assert kept[manifest.files[1].digest] == large
    assert manifest.files[1].pieces == tuple(
        hashlib.sha256(piece).hexdigest() for piece in (large[:PIECE], large[PIECE:])
    )


def test_only_directories_that_are_empty_are_listed(unpack):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name in (".", "a", "a/b", "c"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("./c/file"))
    manifest, _ = unpack(held.getvalue())
    assert manifest.directories == ("a/b",)
    assert [file.path for file in manifest.files] == ["c/file"]


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b", "a//b", "a\nb", "x" * 300])
def test_a_path_that_leads_elsewhere_is_refused(unpack, name):
    assert refused(unpack, tar((name, b"x"))).code is Code.PATH_REFUSED


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_nothing_but_files_and_directories_is_taken(unpack, kind):
    error = refused(unpack, tar(("evil", b""), type=kind, linkname="/etc/passwd"))
    assert error.code is Code.PATH_REFUSED
    assert "evil" in error.message


def test_a_path_twice_or_a_file_beneath_a_file_is_refused(unpack):
    assert refused(unpack, tar(("a", b"1"), ("a", b"2"))).code is Code.ARCHIVE_INVALID
    assert refused(unpack, tar(("a", b"1"), ("a/b", b"2"))).code is Code.ARCHIVE_INVALID


def test_a_bomb_is_stopped_before_it_is_written(unpack):
    assert refused(unpack, tar(("zeros", bytes(10**7))), limit=10**6).code is Code.ARCHIVE_TOO_LARGE


def test_a_name_of_a_gigabyte_is_not_read_into_memory(unpack):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 10**9
    archive = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(10**6))
    assert refused(unpack, archive).code is Code.ARCHIVE_INVALID


@pytest.mark.parametrize("cut", [0, 1, 20, -200])
def test_an_archive_that_is_cut_short_is_refused(unpack, cut):
    whole = tar(("a", os.urandom(5000)), ("b", os.urandom(5000)))
    assert refused(unpack, whole[:cut] if cut else b"no archive").code is Code.ARCHIVE_INVALID


def test_an_archive_of_another_kind_is_refused(unpack):
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a", "x")
    for data, kind in ((zipped.getvalue(), "zip"), (gzip.decompress(tar(("a", b"x"))), "tar")):
        error = refused(unpack, data)
        assert error.code is Code.ARCHIVE_INVALID
        assert error.message == f"template 'lobby' cannot be used: its archive cannot be read: it is a {kind}"


def test_damage_behind_the_last_entry_is_found_by_the_checksum(unpack):
    whole = bytearray(tar(("a", os.urandom(5000))))
    whole[-6] ^= 0xFF
    assert refused(unpack, bytes(whole)).code is Code.ARCHIVE_INVALID


def file(path: str = "a", **facts) -> TemplateFile:
    return TemplateFile(**{"path": path, "mode": 0o644, "size": 1, "digest": DIGEST, **facts})


@pytest.mark.parametrize(
    "files",
    [
        (file(), file()),
        (file(), file("a/b")),
        (file(mode=0o4755),),
        (file(size=-1),),
        (file(size=PIECE + 1),),
        (file(pieces=(DIGEST,)),),
        (file(digest="../../etc"),),
        (file(size=PIECE + 1, pieces=(DIGEST, "no digest")),),
    ],
    ids=["twice", "beneath", "mode", "size", "pieces", "few", "digest", "piece"],
)
def test_a_manifest_that_makes_no_sense_is_refused(files):
    assert refused(check_manifest, TemplateManifest(files=files), name="lobby").code is Code.ARCHIVE_INVALID


def test_a_manifest_with_another_digest_is_refused():
    data = encode_manifest(TemplateManifest(files=(file(),)))
    digest = hashlib.sha256(data).hexdigest()
    assert read_manifest(data, digest=digest, name="lobby").files == (file(),)
    error = refused(read_manifest, data + b" ", digest=digest, name="lobby")
    assert error.code is Code.ARTIFACT_DIGEST_MISMATCH
    evil = encode_manifest(TemplateManifest(files=(file("../x"),)))
    error = refused(read_manifest, evil, digest=hashlib.sha256(evil).hexdigest(), name="lobby")
    assert error.code is Code.PATH_REFUSED
