"""Small parts of a preparation: which Java, how it is called, and where secrets come from."""

from __future__ import annotations

import os

import pytest

from corral.daemon.workload.java import find_java, java_command
from corral.daemon.workload.variable_values import Secrets
from corral.domain.groups.plans import PlanJvm
from corral.errors import Code, Rejected


@pytest.mark.parametrize(
    ("jvm", "heap"),
    [
        (PlanJvm(jar="s.jar", heap_mb=100), ("-Xms100M", "-Xmx100M")),
        (PlanJvm(jar="s.jar"), ()),
        (PlanJvm(jar="s.jar", heap_mb=100, args=("-Xmx1G",)), ("-Xmx1G",)),
        (PlanJvm(jar="s.jar", heap_mb=9, args=("-XX:MaxRAMPercentage=50",)), ("-XX:MaxRAMPercentage=50",)),
    ],
    ids=["planned", "left", "own", "share"],
)
def test_the_heap_is_the_plans_unless_the_group_speaks_of_it(jvm, heap):
    assert java_command(jvm, "/j", ("nogui",)) == ("/j", *heap, "-jar", "s.jar", "nogui")


def test_a_java_that_is_not_there_is_named(tmp_path):
    (tmp_path / "java").write_text("")
    for wanted in (str(tmp_path / "java"), str(tmp_path / "none"), "no-such-java"):
        with pytest.raises(Rejected) as refused:
            find_java(wanted, "")
        assert refused.value.code is Code.JAVA_NOT_FOUND
        assert wanted in refused.value.message
    (tmp_path / "java").chmod(0o755)
    assert find_java("", str(tmp_path / "java")) == str(tmp_path / "java")


def test_secrets_come_from_files_beneath_their_directory_and_chosen_variables(tmp_path):
    (tmp_path / "secrets" / "db").mkdir(parents=True)
    (tmp_path / "secrets" / "db" / "password").write_text("hunter2\n")
    secrets = Secrets(tmp_path / "secrets", {"CORRAL_SECRET_KEY": "k", "HOME": "/root"})
    assert secrets.value("file://db/password", name="DB") == "hunter2"
    assert secrets.value("env://CORRAL_SECRET_KEY", name="KEY") == "k"


@pytest.mark.trap("T26")
@pytest.mark.parametrize(
    "reference",
    [
        "file://../outside",
        "file:///etc/passwd",
        "file://link",
        "file://linked/outside",
        "file://fifo",
        "file://large",
        "file://binary",
        "file://none",
        "env://HOME",
        "env://CORRAL_SECRET_NONE",
        "hunter2",
    ],
)
def test_a_secret_that_is_not_to_be_had_is_refused_without_showing_anything(tmp_path, reference):
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (tmp_path / "outside").write_text("hunter2")
    (secrets / "link").symlink_to(tmp_path / "outside")
    (secrets / "linked").symlink_to(tmp_path)
    os.mkfifo(secrets / "fifo")
    (secrets / "large").write_bytes(b"hunter2" * 20_000)
    (secrets / "binary").write_bytes(b"\xff\xfehunter2")
    with pytest.raises(Rejected) as refused:
        Secrets(secrets, {"HOME": "/root"}).value(reference, name="DB")
    if reference != "hunter2":
        assert "hunter2" not in str(refused.value)
    assert refused.value.code in (Code.SECRET_UNAVAILABLE, Code.VARIABLE_INVALID, Code.PATH_REFUSED)
