"""`corral doctor controller` beside a real controller, and on what is left of one."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys

import msgspec
import pytest

from corral.cli.doctor import controller_checks as checks
from corral.cli.doctor.findings import Severity, Verdict
from corral.cli.doctor.running_role import RunningRole, lock_holder, running_role
from corral.cli.doctor.stored_cluster import StoredCluster, read_store
from corral.errors import Code, Rejected
from corral.system.config import load_controller
from corral.system.files import DirectoryLock
from corral.system.http_config import HttpSection, TlsSection
from corral.testing.cluster import LocalCluster, controller_config
from corral.testing.ports import free_addresses

DAY = dt.timedelta(days=1)


def is_error(found: Verdict, words: str) -> bool:
    return found.severity is Severity.ERROR and words in found.found


def is_advice(found: Verdict, words: str) -> bool:
    return found.severity is Severity.ADVICE and words in found.found


def contents(data: pathlib.Path) -> dict[str, str]:
    """Of the database; its shared index is memory of the processes that have it open."""
    files = [each for each in sorted(data.glob("corral.db*")) if not each.name.endswith("-shm")]
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.fixture
async def stored(scratch: pathlib.Path, tmp_path: pathlib.Path) -> tuple[pathlib.Path, StoredCluster]:
    """A data directory as it was while its controller ran, and what was read of it then."""
    async with LocalCluster(scratch) as cluster:
        api = await cluster.controller()
        before, names = contents(api.data), {each.name for each in api.data.iterdir()}
        found = read_store(api.data)
        assert (contents(api.data), {each.name for each in api.data.iterdir()}) == (before, names)
        for listen in (api.url.removeprefix("http://"), api.grpc_address):
            assert checks.port(listen, "http", os.getpid()).found == f"{listen}, where the controller listens"
        data = tmp_path / "copy"
        shutil.copytree(api.data, data, ignore=shutil.ignore_patterns("*.sock"))
    return data, found


async def test_a_store_is_read_and_never_written_with_and_without_its_controller(stored):
    data, found = stored
    now = dt.datetime.now(dt.UTC)
    assert checks.store(found, now).found.startswith("SQLite, ")
    assert checks.authority(found, now).severity is Severity.OK
    assert is_advice(checks.authority(found, now + 3600 * DAY), "the cluster's authority is valid for")
    assert is_error(checks.authority(found, now + 4000 * DAY), "the cluster's authority expired")

    (data / "corral.db-shm").unlink(missing_ok=True)  # as after a crash of the machine
    before = contents(data)
    with pytest.raises(OSError, match="wait for the next start"):
        read_store(data)
    assert contents(data) == before
    assert not (data / "corral.db-shm").exists()
    with sqlite3.connect(data / "corral.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = contents(data)
    assert read_store(data).users == found.users
    assert contents(data) == before

    key = data / "ca" / "cluster.key"
    assert checks.cluster_key(key, found).severity is Severity.OK
    key.chmod(0o644)
    assert is_error(checks.cluster_key(key, found), "other users can read")
    key.unlink()
    with pytest.raises(Rejected, match="there is no cluster key"):
        checks.cluster_key(key, found)

    with (data / "corral.db").open("r+b") as file:
        file.write(bytes(200))
    with pytest.raises(Rejected) as refused:
        read_store(data)
    assert refused.value.code is Code.FORMAT_INVALID
    (data / "corral.db").unlink()
    with pytest.raises(Rejected, match="there is no cluster"):
        read_store(data)


async def test_a_cluster_whose_administrators_cannot_get_in_is_an_error(stored):
    data, found = stored
    now = dt.datetime.now(dt.UTC)
    (admin,) = found.users
    with_password = found._replace(users=[msgspec.structs.replace(admin, password_hash="x")])
    assert checks.administrator(with_password, now, data).severity is Severity.OK
    assert is_advice(checks.administrator(found, now, data), "tokens alone")
    lost = checks.administrator(found._replace(tokens=[]), now, data)
    assert is_error(lost, "no administrator can log in")
    assert lost.command.startswith(f"corral user create NAME --role ADMIN --data {data}")


def test_a_database_of_another_program_is_an_error(tmp_path):
    with sqlite3.connect(tmp_path / "corral.db") as db:
        db.execute("CREATE TABLE other (id)")
    db.close()
    with pytest.raises(Rejected, match="it is of another program"):
        read_store(tmp_path)


def test_a_port_that_another_program_has_or_nobody_may_have_is_an_error():
    (listen,) = free_addresses(1)
    assert checks.port(listen, "http", 0).severity is Severity.OK
    assert is_error(checks.port(listen, "http", os.getpid()), "does not listen")
    host, _, number = listen.partition(":")
    with socket.create_server((host, int(number))):
        assert is_error(checks.port(listen, "http", 0), f"{listen} is in use by ")
    assert is_error(checks.port("192.0.2.1:8480", "http", 0), "192.0.2.1:8480 cannot be used")


def test_a_database_server_that_does_not_answer_is_an_error():
    (listen,) = free_addresses(1)
    found = checks.database_server(f"postgresql://{listen}/corral")
    assert is_error(found, f"no PostgreSQL at {listen}: Connection refused")
    host, _, number = listen.partition(":")
    with socket.create_server((host, int(number))):
        assert checks.database_server(f"postgresql://{listen}/corral").severity is Severity.OK


def test_http_that_others_can_read_and_a_certificate_that_cannot_be_used_are_told(tmp_path):
    now = dt.datetime.now(dt.UTC)
    assert checks.tls(HttpSection(), now).severity is Severity.OK
    assert is_advice(checks.tls(HttpSection(listen="0.0.0.0:8480"), now), "plain HTTP on 0.0.0.0:8480")
    assert checks.tls(HttpSection(tls=TlsSection(mode="cluster")), now).severity is Severity.OK
    pem = tmp_path / "web.pem"
    pem.write_text("nothing")
    files = HttpSection(tls=TlsSection(mode="files", certificate=str(pem), key=str(pem)))
    with pytest.raises(Rejected, match="the certificate of HTTP cannot be used"):
        checks.tls(files, now)


def test_a_public_url_that_leads_nowhere_is_told():
    assert checks.public_url(HttpSection()).severity is Severity.OK
    assert is_advice(
        checks.public_url(HttpSection(public_url="https://localhost")), "trusted_proxies is empty"
    )
    proxied = HttpSection(public_url="https://localhost", trusted_proxies=("127.0.0.1",))
    assert checks.public_url(proxied).severity is Severity.OK
    cluster = TlsSection(mode="cluster")
    assert is_error(
        checks.public_url(HttpSection(public_url="http://localhost", tls=cluster)), "gets no answer"
    )
    nowhere = HttpSection(public_url="https://nowhere.invalid", tls=cluster)
    assert is_error(checks.public_url(nowhere), "has no address")


def test_the_holder_of_a_lock_is_found_without_taking_it(tmp_path):
    lock = tmp_path / "controller.lock"
    assert lock_holder(lock) == 0
    with DirectoryLock(tmp_path, "controller"):
        assert lock_holder(lock) == os.getpid()
    assert lock_holder(lock) == 0


HOLDER = """
import fcntl, os, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_controller_that_runs_is_checked_with_the_settings_that_it_runs_with(tmp_path):
    data = tmp_path / "up" / "controller"
    data.mkdir(parents=True)
    (tmp_path / "up" / "up.lock").touch()
    given = {"data": str(tmp_path / "up"), "store.url": None}
    stopped = running_role("controller", load_controller, given, file=None)
    assert (stopped.config.data, stopped.config.http.listen, stopped.pid) == (data, "127.0.0.1:8480", 0)
    flags = ("controller", "--data", data, "--http", "127.0.0.1:9480")
    for environment, listen in (({}, "127.0.0.1:9480"), ({"CORRAL_HTTP_LISTN": "x"}, "127.0.0.1:8480")):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, data / "controller.lock", *flags],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            found = running_role("controller", load_controller, given, file=None)
            process.stdin.close()
        assert (found.config.data, found.config.http.listen, found.pid) == (data, listen, process.pid)


def test_every_check_says_why_it_matters(tmp_path):
    role = RunningRole(controller_config(tmp_path), 0)
    assert checks.controller_looks(role).keys() == checks.WHY.keys()
