"""Archives that nobody should unpack, each with the words its refusal must hold."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib

from corral.errors import Code
from corral.testing.archives import tar_gz, zipped

Case = tuple[bytes, Code, str]


def odd_tar(kind: bytes, *, name: str = "odd", link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("fine")
        archive.addfile(info)
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
    return out.getvalue()


def odd_zip(mode: int, *, name: str = "odd") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("fine", b"")
        info = zipfile.ZipInfo(name)
        info.create_system = 3
        info.external_attr = mode << 16
        archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def raw_tar(*entries: tuple[bytes, bytes]) -> bytes:
    """Headers with raw names (up to 100 bytes), as no decent packer writes them."""
    out = b""
    for name, content in entries:
        before = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
        before += b"%011o\0" % len(content) + b"00000000000\0"
        after = (b"0" + bytes(100) + b"ustar\x0000").ljust(512 - 156, b"\0")
        total = sum(before) + sum(after) + 8 * 32
        out += before + b"%06o\0 " % total + after + content + bytes(-len(content) % 512)
    return out + bytes(1024)


def zip_named(*names: bytes) -> bytes:
    """Names as they are, also those that Python's packer would not write."""
    data = zipped({f"{number}".rjust(len(name), "#"): b"x" for number, name in enumerate(names)})
    for number, name in enumerate(names):
        data = data.replace(f"{number}".rjust(len(name), "#").encode(), name)
    return data


def long_header(kind: bytes) -> bytes:
    """A header about the next header, which says that it is as long as a gibibyte."""
    header = bytearray(raw_tar((b"x", b""))[:512])
    header[124:136] = b"%011o\0" % 2**30
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(4096))


def negative_size() -> bytes:
    header = bytearray(raw_tar((b"x", b""))[:512])
    header[124:136] = b"-0000000001\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(1024))


def encrypted_zip() -> bytes:
    data = bytearray(zipped({"secret": b"x" * 100}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    return bytes(data)


def bad_sum_zip() -> bytes:
    data = bytearray(zipped({"wrong": b"x" * 100}))
    for mark, place in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        at = data.index(mark) + place
        data[at] ^= 0xFF
    return bytes(data)


def lying_zip() -> bytes:
    """Its headers say one byte, its content is a megabyte."""
    data = bytearray(zipped({"lies": bytes(1_000_000)}))
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + place
        data[at : at + 4] = struct.pack("<L", 1)
    return bytes(data)


def crowded_zip(count: int) -> bytes:
    """A directory of many entries that all are the same one, under an end mark that says: one."""
    data = zipped({"a": b"x"})
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    record = data[start:end]
    tail = bytearray(data[end:])
    tail[12:16] = struct.pack("<L", len(record) * count)
    return data[:start] + record * count + bytes(tail)


def bad_sum_tar() -> bytes:
    data = bytearray(tar_gz({"a": b"x"}))
    data[-8] ^= 0xFF
    return bytes(data)


def sparse_pax() -> bytes:
    return gzip.compress(pax_before(b"22 GNU.sparse.major=1\n", b"holes") + bytes(1024))


def pax_before(records: bytes, name: bytes) -> bytes:
    """An entry with a pax header before it; without the archive's end."""
    header = bytearray(raw_tar((b"pax", records)))[:-1024]
    header[156:157] = b"x"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header) + raw_tar((name, b"x"))[:-1024]


def far_away_zip(offset: int) -> bytes:
    """Its only entry is said to begin at an offset that only the fields of large archives can hold."""
    data = bytearray(zipped({"far": b"x"}))
    extra = struct.pack("<HHQ", 1, 8, offset)
    record = data.index(b"PK\x01\x02")
    data[record + 30 : record + 32] = struct.pack("<H", len(extra))
    data[record + 42 : record + 46] = b"\xff" * 4
    data[record + 49 : record + 49] = extra
    end = data.rindex(b"PK\x05\x06")
    (size,) = struct.unpack("<L", data[end + 12 : end + 16])
    data[end + 12 : end + 16] = struct.pack("<L", size + len(extra))
    return bytes(data)


PATHS = {
    "../up": "'..'",
    "a/../../up": "'..'",
    "a/..": "'..'",
    "..": "'..'",
    "/etc/passwd": "absolute",
    "//etc/passwd": "absolute",
    ".//../x": "'..'",
    "a//b": "empty part",
    "a/./b": "'.'",
    "a\\..\\b": "backslash",
    "new\nline": "control",
    "bell\x07": "control",
    "x" * 256: "255 bytes",
    "ab/" * 1400 + "x": "4096 bytes",
}

REFUSED: dict[str, Case] = {
    "tar symlink": (odd_tar(tarfile.SYMTYPE, link="/etc/passwd"), Code.PATH_REFUSED, "symbolic link"),
    "tar symlink within": (odd_tar(tarfile.SYMTYPE, link="fine"), Code.PATH_REFUSED, "symbolic link"),
    "tar hard link": (odd_tar(tarfile.LNKTYPE, link="fine"), Code.PATH_REFUSED, "hard link"),
    "tar device": (odd_tar(tarfile.CHRTYPE), Code.PATH_REFUSED, "device"),
    "tar block device": (odd_tar(tarfile.BLKTYPE), Code.PATH_REFUSED, "device"),
    "tar pipe": (odd_tar(tarfile.FIFOTYPE), Code.PATH_REFUSED, "pipe"),
    "tar sparse": (sparse_pax(), Code.PATH_REFUSED, "sparse"),
    "tar unknown": (odd_tar(b"Z"), Code.PATH_REFUSED, "unknown kind"),
    "zip symlink": (odd_zip(0o120777), Code.PATH_REFUSED, "symbolic link"),
    "zip device": (odd_zip(0o020666), Code.PATH_REFUSED, "device"),
    "zip pipe": (odd_zip(0o010666), Code.PATH_REFUSED, "pipe"),
    "zip encrypted": (encrypted_zip(), Code.PATH_REFUSED, "'secret' is refused: it is encrypted"),
    "zip NUL": (zip_named(b"a\0/../b"), Code.PATH_REFUSED, "control"),
    "tar twice": (
        raw_tar((b"a", b"1"), (b"./a", b"2")),
        Code.PATH_REFUSED,
        "'./a' is refused: its path is in",
    ),
    "zip twice": (zip_named(b"same", b"same"), Code.PATH_REFUSED, "twice"),
    "tar beneath a file": (
        tar_gz({"a": b"1", "a/b": b"2"}),
        Code.PATH_REFUSED,
        "beneath 'a', which is a file",
    ),
    "tar file over a directory": (tar_gz({"a/b": b"1", "a": b"2"}), Code.PATH_REFUSED, "as if it were"),
    "tar directory over a file": (tar_gz({"a": b"1", "a/": b""}), Code.PATH_REFUSED, "also as a file"),
    "zip beneath a file": (zipped({"a": b"1", "a/b/c": b"2"}), Code.PATH_REFUSED, "beneath 'a'"),
    "tar not UTF-8": (raw_tar((b"caf\xe9", b"")), Code.PATH_REFUSED, "not UTF-8"),
    "nothing": (b"", Code.ARCHIVE_INVALID, "empty"),
    "text": (b"hello world" * 100, Code.ARCHIVE_INVALID, "neither tar.gz nor zip"),
    "gzip of text": (gzip.compress(b"hello" * 1000), Code.ARCHIVE_INVALID, "not a tar"),
    "gzip of nothing": (gzip.compress(b""), Code.ARCHIVE_INVALID, "end mark"),
    "tar bad sum": (bad_sum_tar(), Code.ARCHIVE_INVALID, "incorrect data check"),
    "tar cut in gzip": (tar_gz({"a": bytes(range(256)) * 4000})[:-3000], Code.ARCHIVE_INVALID, "cut"),
    "tar cut in content": (
        gzip.compress(raw_tar((b"a", b"x" * 5000))[:2000]),
        Code.ARCHIVE_INVALID,
        "'a': it was cut, 3512",
    ),
    "tar without end": (gzip.compress(raw_tar((b"a", b"x"))[:1024]), Code.ARCHIVE_INVALID, "end mark"),
    "tar garbage behind": (tar_gz({"a": b"x"}) + b"garbage", Code.ARCHIVE_INVALID, "cannot be read"),
    "tar long pax": (long_header(b"x"), Code.ARCHIVE_INVALID, "1073741824 bytes is too long"),
    "tar long name": (long_header(b"L"), Code.ARCHIVE_INVALID, "too long"),
    "tar negative": (negative_size(), Code.ARCHIVE_INVALID, "number"),
    "zip bad sum": (bad_sum_zip(), Code.ARCHIVE_INVALID, "'wrong'"),
    "zip lies": (lying_zip(), Code.ARCHIVE_INVALID, "'lies'"),
    "zip far away": (far_away_zip(2**64 - 1), Code.ARCHIVE_INVALID, "'far': its place is not in the archive"),
    "zip too far": (far_away_zip(2**63 - 1), Code.ARCHIVE_INVALID, "'far'"),
    "zip cut": (zipped({"a": b"x" * 1000})[:-30], Code.ARCHIVE_INVALID, "cut"),
    "zip start only": (b"PK\x03\x04", Code.ARCHIVE_INVALID, "cut"),
    "zip end only": (b"PK\x05\x06" + b"\xff" * 18, Code.ARCHIVE_INVALID, "directory"),
    "zip damaged middle": (
        zipped({"a": zlib.compress(b"x" * 100_000)}).replace(b"PK\x03\x04", b"PK\x03\x05", 1),
        Code.ARCHIVE_INVALID,
        "",
    ),
}


def hidden_zip(data: bytes) -> bytes:
    """The same archive, whose directory only the records of large archives tell: Python's reader believes
    these always, not only when the plain record points at them."""
    end = data.rfind(b"PK\x05\x06")
    count, size, start = struct.unpack("<HLL", data[end + 10 : end + 20])
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    plain = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)
    return data[:end] + large + locator + plain
