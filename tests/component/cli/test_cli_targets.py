"""Where downloads go: files, links, pipes and devices."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
from collections.abc import Callable

import pytest
from stand_in_controller import File, StandIn

Corral = Callable[..., subprocess.CompletedProcess[str]]

CONTENT = b'{"number": 1}\n'


@pytest.fixture(autouse=True)
def audit(server: StandIn) -> None:
    server.answers["GET", "/api/v1/audit/export"] = File(CONTENT, kind="application/x-ndjson")


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_export_of_the_audit_is_for_its_owner_alone(corral: Corral, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "audit.ndjson"
    assert corral("audit", "export", str(file)).returncode == 0
    assert (file.read_bytes(), mode(file)) == (CONTENT, 0o600)


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664])
def test_a_file_that_is_there_keeps_its_mode(corral: Corral, tmp_path: pathlib.Path, kept: int) -> None:
    file = tmp_path / "audit.ndjson"
    file.write_text("before")
    file.chmod(kept)
    assert corral("audit", "export", str(file)).returncode == 0
    assert (file.read_bytes(), mode(file)) == (CONTENT, kept)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(
    corral: Corral, tmp_path: pathlib.Path, there: bool
) -> None:
    (tmp_path / "far").mkdir()
    file, link = tmp_path / "far" / "audit.ndjson", tmp_path / "link"
    if there:
        file.write_text("before")
    link.symlink_to(file)
    assert corral("audit", "export", str(link)).returncode == 0
    assert link.is_symlink()
    assert file.read_bytes() == CONTENT
    assert sorted(tmp_path.rglob("*.part")) == []


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(corral: Corral, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Open for both: a command that never opens it leaves the reader without bytes, not the test without an end.
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert corral("audit", "export", str(pipe)).returncode == 0
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        assert os.read(descriptor, 1000) == CONTENT
    finally:
        os.close(descriptor)


def test_a_device_is_written_and_never_replaced(corral: Corral, tmp_path: pathlib.Path) -> None:
    """By links in a directory of the test: whatever goes wrong replaces the link."""
    null, full = tmp_path / "null", tmp_path / "full"
    null.symlink_to("/dev/null")
    full.symlink_to("/dev/full")
    assert corral("audit", "export", str(null)).returncode == 0
    done = corral("audit", "export", str(full))
    assert (done.returncode, "No space left on device" in done.stderr) == (1, True)
    assert null.is_symlink()
    assert full.is_symlink()
    assert stat.S_ISCHR(null.stat().st_mode)


def test_a_download_that_breaks_off_leaves_the_former_file(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["GET", "/api/v1/audit/export"] = File(CONTENT, kind="application/x-ndjson", cut=True)
    file = tmp_path / "audit.ndjson"
    file.write_text("before")
    assert corral("audit", "export", str(file)).returncode == 1
    assert file.read_text() == "before"
    assert sorted(tmp_path.glob(".*")) == []


def test_a_directory_is_refused(corral: Corral, tmp_path: pathlib.Path) -> None:
    done = corral("audit", "export", str(tmp_path))
    assert (done.returncode, "Is a directory" in done.stderr) == (1, True)
