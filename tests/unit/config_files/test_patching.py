from __future__ import annotations

import asyncio
import os
import pathlib
import time

import pytest

from corral.daemon.config_files.patches import apply_patches, mergeable, merged
from corral.daemon.config_files.text_edits import MAX_BYTES
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.errors import Code, Rejected

VALUES = {"PORT": "25570", "NAME": "lobby", "SLASHED": r"a\1b"}


def patch(directory: pathlib.Path, *patches: PatchSpec) -> None:
    apply_patches(directory, patches, values=VALUES)


def regex(file: str, pattern: str, value: str) -> PatchSpec:
    return PatchSpec(file=file, path=pattern, op=PatchOp.REGEX, value=value)


def refused(directory: pathlib.Path, *patches: PatchSpec) -> Rejected:
    before = {
        path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    }
    with pytest.raises(Rejected) as caught:
        patch(directory, *patches)
    assert before == {p: p.read_bytes() for p in directory.rglob("*") if p.is_file() and not p.is_symlink()}
    return caught.value


def test_patches_are_made_in_their_order_with_their_variables(scratch):
    (scratch / "conf").mkdir()
    (scratch / "conf" / "a.yml").write_text("# kept\nport: 1\nname: x\n")
    (scratch / "server.properties").write_text("server-port=1\n")
    patch(
        scratch,
        PatchSpec(file="conf/a.yml", path="port", value="%PORT%"),
        PatchSpec(file="conf/a.yml", path="name", value="%NAME%-%PORT% of %NOBODY%"),
        PatchSpec(file="conf/a.yml", path='list."a.b"', value=["%PORT%", True]),
        PatchSpec(file="server.properties", path="server-port", op=PatchOp.REPLACE, value="%PORT%"),
        PatchSpec(file="plain.conf", path="deep.port", value="%PORT%", format="toml"),
        regex("conf/a.yml", "^name: (.*)$", r"name: <\1>"),
    )
    assert (scratch / "conf" / "a.yml").read_text() == (
        '# kept\nport: 25570\nname: <"lobby-25570 of %NOBODY%">\nlist:\n  a.b:\n    - 25570\n    - true\n'
    )
    assert (scratch / "server.properties").read_text() == "server-port=25570\n"
    assert (scratch / "plain.conf").read_text() == "[deep]\nport = 25570\n"
    assert sorted(path.name for path in scratch.iterdir()) == ["conf", "plain.conf", "server.properties"]


def test_mode_and_owner_of_a_file_stay(scratch):
    file = scratch / "a.json"
    file.write_text("{}")
    file.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(file, 12345, 54321)
    before = file.stat()
    patch(scratch, PatchSpec(file="a.json", path="x", value=1))
    after = file.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_a_file_that_is_linked_into_the_cache_keeps_its_content_there(scratch):
    file = scratch / "a.json"
    file.write_text("{}")
    file.chmod(0o444)
    os.link(file, scratch / "cached")
    patch(scratch, PatchSpec(file="a.json", path="x", value=1))
    assert ((scratch / "cached").read_text(), "x" in file.read_text()) == ("{}", True)


def test_a_file_with_a_name_elsewhere_is_not_patched(scratch):
    file = scratch / "a.json"
    file.write_text("{}")
    os.link(file, scratch / "elsewhere")
    with pytest.raises(Rejected, match="more than one name"):
        patch(scratch, PatchSpec(file="a.json", path="x", value=1))
    assert file.read_text() == "{}"


def test_a_new_file_and_its_directories_belong_to_whom_the_directory_belongs(scratch):
    if os.geteuid() == 0:
        os.chown(scratch, 12345, 54321)
    patch(scratch, PatchSpec(file="new/deep/a.yml", path="x", value=1))
    owner = scratch.stat().st_uid
    assert {path.stat().st_uid for path in scratch.rglob("*")} == {owner}
    assert (scratch / "new/deep/a.yml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("op", [PatchOp.REPLACE, PatchOp.REGEX])
def test_only_set_makes_a_file(scratch, op):
    error = refused(scratch, PatchSpec(file="a.yml", path="x", op=op, value="1"))
    assert error.code is Code.CONFIG_PATCH_FAILED
    assert "a.yml" in error.message
    assert not list(scratch.iterdir())


def test_when_one_patch_cannot_be_made_no_file_changes(scratch):
    (scratch / "a.yml").write_text("x: 1\n")
    (scratch / "b.yml").write_text("x: 1\n")
    good = PatchSpec(file="a.yml", path="x", value=2)
    assert "'y'" in refused(scratch, good, PatchSpec(file="b.yml", path="y", op=PatchOp.REPLACE)).message


def test_a_broken_file_is_named_with_its_line(scratch):
    (scratch / "a.yml").write_text("x: 1\ny: [\n")
    error = refused(scratch, PatchSpec(file="a.yml", path="x", value=2))
    assert error.code is Code.CONFIG_FILE_INVALID
    assert "a.yml" in error.message
    assert "line 3" in error.message


def test_an_unknown_ending_needs_a_format(scratch):
    (scratch / "a.cfg").write_text("x")
    error = refused(scratch, PatchSpec(file="a.cfg", path="x", value=2))
    assert "properties, yaml, json, toml" in str(error)


def test_no_error_tells_a_value(scratch):
    (scratch / "a.yml").write_text("x: 1\n")
    secret = {"SECRET": "hunter2"}
    for patch_ in [
        PatchSpec(file="a.yml", path="x.y", value="%SECRET%"),
        PatchSpec(file="a.yml", path="x", op=PatchOp.REGEX, value=r"%SECRET% \7"),
        PatchSpec(file="a.properties", path="x", value=["%SECRET%"]),
    ]:
        with pytest.raises(Rejected) as caught:
            apply_patches(scratch, [patch_], values=secret)
        assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.trap("T26")
@pytest.mark.parametrize(
    "path", ["link.yml", "folder/x.yml", "../outside.yml", "/etc/x.yml", "dir", "pipe.yml"]
)
def test_nothing_outside_of_the_directory_is_read_or_written(scratch, path):
    home = scratch / "home"
    home.mkdir()
    outside = scratch / "outside.yml"
    outside.write_text("x: 1\n")
    (home / "link.yml").symlink_to(outside)
    (home / "folder").symlink_to(scratch)
    (home / "dir").mkdir()
    os.mkfifo(home / "pipe.yml")
    for op in PatchOp:
        with pytest.raises(Rejected) as caught:
            patch(home, PatchSpec(file=path, path="x", op=op, value="2", format="yaml"))
        assert caught.value.code is Code.PATH_REFUSED
    assert outside.read_text() == "x: 1\n"
    assert sorted(entry.name for entry in scratch.iterdir()) == ["home", "outside.yml"]


def test_a_file_too_large_to_be_a_configuration_is_refused(scratch):
    (scratch / "a.yml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(Rejected, match="a configuration file has"):
        patch(scratch, PatchSpec(file="a.yml", path="x", value=2))


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "[" + "1," * 600_000 + "1]"),
        ("a.yml", "[" + "1," * 600_000 + "1]"),
        ("a.toml", "a=1\n#" + "x" * (1 << 20)),
    ],
)
def test_a_file_that_would_take_too_long_to_read_is_refused(scratch, name, text):
    (scratch / name).write_text(text)
    error = refused(scratch, PatchSpec(file=name, path="x", value=2))
    assert error.code is Code.CONFIG_FILE_INVALID
    assert "more than" in error.message


def test_a_regex_changes_matches_only_and_any_bytes_elsewhere_stay(scratch):
    (scratch / "a.cfg").write_bytes(b"caf\xe9 port=1\r\n# port=2 \xff\nport=3\n")
    patch(scratch, regex("a.cfg", r"port=(?P<old>\d)", r"port=%PORT% (\1, \g<old>, \0, \\, \d)"))
    found = (scratch / "a.cfg").read_bytes()
    assert found == (
        b"caf\xe9 port=25570 (1, 1, port=1, \\, \\d)\r\n# port=25570 (2, 2, port=2, \\, \\d) \xff\n"
        b"port=25570 (3, 3, port=3, \\, \\d)\n"
    )


def test_a_variable_s_backslashes_are_its_own_and_empty_matches_cut_no_character(scratch):
    (scratch / "a.cfg").write_text("é")
    patch(scratch, regex("a.cfg", "x*", "%SLASHED%"))
    assert (scratch / "a.cfg").read_text() == r"a\1béa\1b"


@pytest.mark.parametrize(("pattern", "value"), [("(a", "x"), ("a", r"\1"), ("a", r"\g<b>"), (r"(?=a)", "x")])
def test_a_pattern_or_a_group_that_does_not_exist_is_refused(scratch, pattern, value):
    (scratch / "a.cfg").write_text("a")
    assert refused(scratch, regex("a.cfg", pattern, value)).code is Code.CONFIG_PATCH_FAILED


@pytest.mark.trap("T42")
def test_an_exponential_pattern_is_answered_at_once(scratch):
    (scratch / "a.cfg").write_text("a" * 1_000_000 + "b\n")
    patch(scratch, regex("a.cfg", "(a+)+$", "x"))  # elsewhere this takes longer than any test may
    assert (scratch / "a.cfg").read_text() == "a" * 1_000_000 + "b\n"


@pytest.mark.trap("T42")
async def test_an_exponential_pattern_leaves_the_loop_to_others(scratch):
    (scratch / "a.cfg").write_text("a" * 30 + "b\n")
    patching = asyncio.create_task(asyncio.to_thread(patch, scratch, regex("a.cfg", "(a+)+$", "x")))
    worst, before = 0.0, time.monotonic()
    while not patching.done():
        await asyncio.sleep(0.005)
        worst, before = max(worst, time.monotonic() - before), time.monotonic()
    await patching
    assert worst < 30  # an engine that goes back holds the loop for a minute


@pytest.mark.trap("T42")
def test_a_pattern_that_looks_to_the_end_at_every_byte_is_given_up(scratch):
    (scratch / "a.cfg").write_text("a" * 4_000_000)
    began = time.monotonic()
    error = refused(scratch, regex("a.cfg", "(?s:(?:.*z)?)", "x"))
    assert "not found within" in error.message
    assert time.monotonic() - began < 60


def test_layers_are_merged_by_the_ending_of_their_file():
    assert mergeable("a/b.YML")
    assert not mergeable("a/b.txt")
    assert merged(b"a: 1 # x\nb: 2\n", b"b: 3\n", name="x.yaml") == b"a: 1 # x\nb: 3\n"
    assert merged(b"#c\na=1\nb=2\n", b"b=3\nc=4\n", name="server.properties") == b"#c\na=1\nb=3\nc=4\n"
    assert merged(b"lower", b"upper", name="x.txt") == b"upper"
    with pytest.raises(Rejected, match=r"x\.json.*line 1") as caught:
        merged(b"{", b"{}", name="x.json")
    assert caught.value.code is Code.CONFIG_FILE_INVALID
