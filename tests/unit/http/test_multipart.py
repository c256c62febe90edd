"""Forms with files: whatever the pieces they come in, and whatever somebody sends instead of one."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import random
from collections.abc import AsyncIterator, Iterable

import hypothesis
import pytest
from hypothesis import strategies as st

from corral.controller.http.messages.multipart import (
    MAX_HEAD,
    MAX_HEADERS,
    MAX_PARTS,
    FormReader,
    PartBegins,
    PartData,
    boundary_of,
)
from corral.controller.http.messages.uploads import ReceivedForm, received_form
from corral.controller.modules.upload_files import sweep_uploads
from corral.errors import CorralError, Rejected

BOUNDARY = "xx-bound--ary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def part(name: str, content: bytes, *, filename: str = "", extra: str = "") -> bytes:
    named = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    head = f"--{BOUNDARY}\r\nContent-Disposition: {named}\r\n{extra}\r\n"
    return head.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def read(pieces: Iterable[bytes]) -> dict[str, tuple[str, bytes]]:
    reader = FormReader(BOUNDARY)
    found: dict[str, tuple[str, bytes]] = {}
    name = ""
    for piece in pieces:
        for told in reader.feed(piece):
            if isinstance(told, PartBegins):
                name = told.name
                found[name] = (told.filename, b"")
            elif isinstance(told, PartData):
                found[name] = (found[name][0], found[name][1] + told.content)
    reader.close()
    return found


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[begin:end] for begin, end in itertools.pairwise(edges)]


# What looks like a boundary, begins like one, or ends like one, and is none.
TRICKY = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"-",
            b"--",
            b"\r\n-",
            b"\r\n--",
            b"\r\n--xx",
            b"\r\n--xx-bound--ar",
            b"x",
            b"\0",
        ]
    ),
    max_size=30,
).map(b"".join)
CONTENT = st.one_of(st.binary(max_size=300), TRICKY).filter(
    lambda data: b"--" + BOUNDARY.encode() not in data
)


@hypothesis.given(
    first=CONTENT,
    second=CONTENT,
    places=st.lists(st.integers(0, 10_000), max_size=40),
    preamble=st.booleans(),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_a_form_is_read_the_same_wherever_its_pieces_end(
    first: bytes, second: bytes, places: list[int], preamble: bool
) -> None:
    body = (b"to be skipped\r\n" if preamble else b"") + form(
        part("file", first, filename="a b.zip"), part("signature", second)
    )
    expected = {"file": ("a b.zip", first), "signature": ("", second)}
    assert read(cut(body, places)) == expected
    assert read(bytes([byte]) for byte in body) == expected


@hypothesis.given(body=st.binary(max_size=500), places=st.lists(st.integers(0, 500), max_size=10))
@hypothesis.settings(max_examples=150, deadline=None)
def test_bytes_that_are_no_form_are_refused_and_nothing_else_happens(body: bytes, places: list[int]) -> None:
    hypothesis.assume(b"--" + BOUNDARY.encode() not in body)
    with pytest.raises(Rejected, match="the form cannot be read"):
        read(cut(body, places))


@hypothesis.given(
    places=st.lists(st.integers(0, 10_000), min_size=1, max_size=6),
    junk=st.binary(min_size=1, max_size=8),
    splits=st.lists(st.integers(0, 10_000), max_size=8),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_a_damaged_form_is_read_or_refused_whatever_its_pieces(
    places: list[int], junk: bytes, splits: list[int]
) -> None:
    """Whole or in pieces, the verdict is the same one."""
    body = bytearray(form(part("file", b"content", filename="a.zip"), part("signature", b"s")))
    for place in places:
        at = place % len(body)
        body[at : at + len(junk)] = junk

    def verdict(pieces: list[bytes]) -> object:
        try:
            return read(pieces)
        except CorralError as error:
            return error.code

    assert verdict([bytes(body)]) == verdict(cut(bytes(body), splits))


def refused(body: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        read([body])
    with pytest.raises(Rejected):
        read(bytes([byte]) for byte in body)
    assert caught.value.code.status == 400
    assert caught.value.hint
    return caught.value.message


def test_a_form_without_its_last_boundary_was_cut_off() -> None:
    assert "cut off" in refused(part("file", b"x" * 10_000))
    assert "cut off" in refused(form(part("file", b"x"))[:-5])
    assert "empty" in refused(b"")


def test_what_is_sent_instead_of_a_part_is_refused() -> None:
    border = f"--{BOUNDARY}".encode()
    assert "no name" in refused(border + b"\r\nContent-Type: text/plain\r\n\r\nx\r\n" + border + b"--")
    assert "malformed header" in refused(border + b"\r\n\r\nx\r\n\r\n" + border + b"--")
    assert "no name" in refused(border + b"\r\nContent-Disposition: form-data\r\n\r\nx\r\n" + border + b"--")
    assert "no name" in refused(
        border + b'\r\nContent-Disposition: attachment; name="file"\r\n\r\nx\r\n' + border + b"--"
    )
    assert "alone on its line" in refused(border + b'x\r\nContent-Disposition: form-data; name="a"\r\n\r\n')
    assert "alone on its line" in refused(border + b" " * 1000)
    assert "first boundary" in refused(b"x" * 10_000 + border)


def test_lines_that_end_otherwise_are_refused() -> None:
    message = refused(form(part("file", b"x")).replace(b"\r\n", b"\n"))
    assert "boundary" in message


def test_the_head_of_a_part_is_bounded() -> None:
    assert str(MAX_HEAD) in refused(form(part("file", b"x", extra=f"X-A: {'a' * MAX_HEAD}\r\n")))
    assert str(MAX_HEAD) in refused(f"--{BOUNDARY}\r\n".encode() + b"a" * (2 * MAX_HEAD))
    many = "".join(f"X-{number}: a\r\n" for number in range(MAX_HEADERS))
    assert "headers" in refused(form(part("file", b"x", extra=many)))


def test_the_number_of_parts_is_bounded() -> None:
    assert str(MAX_PARTS) in refused(form(*(part(f"p{number}", b"") for number in range(5000))))


@pytest.mark.parametrize(
    "extra",
    [
        "Content-Transfer-Encoding: base64\r\n",
        "Content-Type: text/plain; charset=utf-16\r\n",
        "Content-Type: text/plain; charset=iso-8859-1\r\n",
        "Content-Disposition: form-data; name=again\r\n",
        "No colon\r\n",
        "Sp ace: x\r\n",
        "X: a\x00b\r\n",
        "X: a\nContent-Type: b\r\n",
        ' folded: "x"\r\n',
    ],
)
def test_a_head_that_two_readers_might_read_differently_is_refused(extra: str) -> None:
    refused(form(part("file", b"x", extra=extra)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"form-data; name", b"form-data;\r\n name"),
        (b"Content-Disposition:", b"Content-Disposition :"),
        (b"Content-Disposition:", b"Content-Disposition\t:"),
    ],
    ids=["folded", "space", "tab"],
)
def test_a_disposition_that_only_lenient_readers_understand_is_refused(before: bytes, after: bytes) -> None:
    assert "malformed header" in refused(form(part("file", b"x")).replace(before, after))


def test_the_end_of_a_form_may_come_in_a_piece_of_its_own() -> None:
    body = form(part("file", b"x"))
    for places in ((len(body) - 2,), (len(body) - 1,), (len(body) - 4, len(body) - 2)):
        assert read(cut(body, places)) == {"file": ("", b"x")}
    assert read([body, b"whatever follows"]) == {"file": ("", b"x")}


@pytest.mark.parametrize("length", [1, 14, 15, 16, 40, 4000])
def test_what_stands_before_a_boundary_on_its_line_hides_it_whatever_the_pieces(length: int) -> None:
    body = b"x" * length + form(part("file", b"x"))
    for places in ([], [length], [length - 1], [length, length + 5], range(0, len(body), 7)):
        assert read(cut(body, places)) == {}


def test_a_head_that_is_not_utf8_is_refused() -> None:
    assert "UTF-8" in refused(form(part("file", b"x", filename="@")).replace(b"@", b"\xff"))


def test_a_name_is_given_once_and_is_not_too_long() -> None:
    refused(form(part('a"; name="b', b"x")))
    assert "too long" in refused(form(part("n" * 200, b"x")))
    assert "too long" in refused(form(part("n", b"x", filename="f" * 2000)))


def test_names_may_be_quoted_escaped_and_in_utf8() -> None:
    assert read([form(part("file", b"x", filename="größe.zip"))])["file"][0] == "größe.zip"
    assert read([form(part("file", b"x", filename='a\\"b.zip'))])["file"][0] == 'a"b.zip'
    bare = form(part("file", b"x")).replace(b'name="file"', b"name=file")
    assert read([bare]) == {"file": ("", b"x")}


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        f"multipart/form-data; boundary={'b' * 71}",
        "multipart/form-data; boundary=a\x00b",
        'multipart/form-data; boundary="a\\"b"',
        'multipart/form-data; boundary="ends with space "',
        "multipart/form-data; boundary=größe",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary",
        "multipart/form-data; boundary='a b'",
    ],
)
def test_a_boundary_that_cannot_be_is_refused(content_type: str) -> None:
    with pytest.raises(Rejected, match=r"boundary|malformed"):
        boundary_of(content_type)


def test_a_boundary_of_seventy_characters_is_fine() -> None:
    assert boundary_of(f"Multipart/Form-Data; charset=utf-8; boundary={'b' * 70}") == "b" * 70
    assert boundary_of('multipart/form-data; boundary="a b:c"') == "a b:c"
    assert boundary_of("application/zip") is None
    assert boundary_of("multipart/form-data boundary=x") is None


async def stream(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def receive(
    directory: pathlib.Path,
    pieces: Iterable[bytes],
    *,
    content_type: str = FORM,
    limit: int = 10_000_000,
) -> tuple[ReceivedForm, bytes]:
    async with received_form(
        stream(pieces), content_type=content_type, directory=directory, limit=limit, small={"signature": 1000}
    ) as received:
        assert [received.file] == list(directory.iterdir())
        assert received.file.stat().st_mode & 0o777 == 0o600
        content = received.file.read_bytes()
    assert list(directory.iterdir()) == []
    return received, content


async def test_a_large_file_goes_to_disk_and_is_gone_afterwards(tmp_path: pathlib.Path) -> None:
    content = random.Random(1).randbytes(5_000_000)
    body = form(part("signature", b"sig", filename="m.zip.sig"), part("file", content, filename="m.zip"))
    received, found = await receive(tmp_path / "uploads", cut(body, range(0, len(body), 60_000)))
    assert found == content
    assert (received.filename, received.size) == ("m.zip", len(content))
    assert received.parts["signature"].content == b"sig"
    assert received.parts["signature"].filename == "m.zip.sig"


async def test_what_is_sent_counts_and_not_how_it_is_wrapped(tmp_path: pathlib.Path) -> None:
    wrapped = form(part("file", b"zip"))
    received, _ = await receive(tmp_path, [wrapped])
    other = wrapped.replace(BOUNDARY.encode(), b"another")
    again, _ = await receive(tmp_path, [other], content_type="multipart/form-data; boundary=another")
    bare, found = await receive(tmp_path, [b"zi", b"p"], content_type="application/zip")
    assert found == b"zip"
    assert received.digest == again.digest == bare.digest
    signed, _ = await receive(tmp_path, [form(part("file", b"zip"), part("signature", b"s"))])
    assert signed.digest != received.digest


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (form(part("file", b"x" * 5000)), "BODY_TOO_LARGE"),
        (form(part("file", b"x"), part("signature", b"s" * 1001)), "BODY_TOO_LARGE"),
        (form(part("file", b"x"), part("file", b"y")), "BAD_REQUEST"),
        (form(part("file", b"x"), part("signature", b"y"), part("signature", b"y")), "BAD_REQUEST"),
        (form(part("file", b"x"), part("signatur", b"y")), "UNKNOWN_FIELD"),
        (form(part("file", b"x"), part("_charset_", b"utf-16")), "UNKNOWN_FIELD"),
        (form(part("signature", b"y")), "MISSING_FIELD"),
        (form(part("file", b"")), "MISSING_FIELD"),
        (form(part("file", b"x" * 100))[:-20], "BAD_REQUEST"),
        (b"", "BAD_REQUEST"),
    ],
)
async def test_a_form_that_is_refused_leaves_nothing(tmp_path: pathlib.Path, body: bytes, code: str) -> None:
    with pytest.raises(Rejected) as caught:
        await receive(tmp_path, [body], limit=4000)
    assert caught.value.code.name == code
    assert list(tmp_path.iterdir()) == []


async def test_only_forms_and_files_are_taken(tmp_path: pathlib.Path) -> None:
    for content_type in (
        "",
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/mixed; boundary=x",
    ):
        with pytest.raises(Rejected) as caught:
            await receive(tmp_path, [b"x"], content_type=content_type)
        assert caught.value.code.name == "UNSUPPORTED_MEDIA_TYPE"


async def test_what_a_dead_process_left_is_swept_out_and_what_comes_in_is_not(tmp_path: pathlib.Path) -> None:
    (tmp_path / "module-abc.part").write_bytes(b"half")
    (tmp_path / "other").write_bytes(b"not ours")
    taking = received_form(
        stream([b"x"]), content_type="application/zip", directory=tmp_path, limit=10, small={}
    )
    async with taking as received:
        sweep_uploads(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [received.file.name, "other"]
        assert received.file.read_bytes() == b"x"
    sweep_uploads(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


async def test_uploads_and_sweeps_side_by_side_lose_nothing(tmp_path: pathlib.Path) -> None:
    async def upload(number: int) -> None:
        content = str(number).encode()
        async with received_form(
            stream([content]), content_type="application/zip", directory=tmp_path, limit=10, small={}
        ) as received:
            await asyncio.to_thread(sweep_uploads, tmp_path)
            assert received.file.read_bytes() == content

    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(upload(number))
            group.create_task(asyncio.to_thread(sweep_uploads, tmp_path))
    assert list(tmp_path.iterdir()) == []
