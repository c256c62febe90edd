"""Forms that no library would send: each is refused clearly, and nothing is installed or left behind."""

from __future__ import annotations

import pathlib

import hypothesis.strategies as st
import pytest
from http_rig import Rig
from hypothesis import HealthCheck, given, settings

MODULES = "/api/v1/modules"
LINE = st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=40).map(
    lambda text: text.encode("latin-1")
)
NAMES = st.sampled_from([b"file", b"signature", b"settings", b"other", b"", b"file\\", b'fi"le', b"\xff"])
HEADS = st.one_of(
    st.builds(
        lambda name, more: b'Content-Disposition: form-data; name="' + name + b'"' + more,
        NAMES,
        st.sampled_from(
            [b"", b'; filename="m.zip"', b"; filename=../x", b'; filename="', b";;", b'; name="file"']
        ),
    ),
    LINE,
    st.builds(lambda size: b"X: " + b"a" * size, st.sampled_from([1, 4_000, 20_000])),
)
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"PK\x05\x06" + b"\0" * 18, b"{", b"{}", b"\r\n", b"--x", b"--x--", b"x" * 70_000]),
)
BORDERS = st.sampled_from(
    [b"--x\r\n", b"--x\r\n", b"--x\r\n", b"--x", b"--x--\r\n", b"\r\n--x \t\r\n", b"--y\r\n", b""]
)
ENDS = st.sampled_from([b"--x--\r\n", b"--x--", b"--x\r\n", b"", b"--x-", b"--x--\r\nmore"])
TYPES = st.sampled_from(
    [
        "multipart/form-data; boundary=x",
        "multipart/form-data; boundary=x",
        'multipart/form-data; boundary="x"',
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=x; boundary=y",
        "multipart/mixed; boundary=x",
        "multipart/form-data; boundary=" + "x" * 300,
    ]
)


@st.composite
def forms(draw: st.DrawFn) -> bytes:
    """Parts with odd heads, borders and ends."""
    made = b""
    for _ in range(draw(st.integers(0, 4))):
        heads = b"".join(head + b"\r\n" for head in draw(st.lists(HEADS, max_size=3)))
        made += draw(BORDERS) + heads + draw(st.sampled_from([b"\r\n", b"", b"\n"])) + draw(CONTENT) + b"\r\n"
    return made + draw(ENDS)


def files(data: pathlib.Path) -> set[pathlib.Path]:
    return {path for path in data.rglob("*") if path.is_file() and "corral.db" not in path.name}


@pytest.mark.system
@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None, derandomize=True)
@given(kind=TYPES, body=forms())
async def test_any_form_is_refused_clearly_and_leaves_nothing(rig: Rig, kind: str, body: bytes) -> None:
    before = files(rig.data)
    async with rig.client() as client:
        answer = await client.post(MODULES, content=body, headers={"content-type": kind})
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text, body)
    assert answer.json()["error"]["code"]
    assert not list(rig.state.modules)
    assert files(rig.data) == before
