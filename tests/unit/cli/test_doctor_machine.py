"""What `corral doctor` says of a machine, each check made to fail by a real file, disk, clock or certificate."""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from corral.cli.doctor import machine_checks as machine
from corral.cli.doctor.findings import Severity, findings, ok
from corral.errors import Code, Rejected
from corral.testing.small_disk import small_disk

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
WEEK = dt.timedelta(days=7)


def expiring(end: dt.datetime, begin: dt.datetime = NOW - 5 * WEEK) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n1")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(begin).not_valid_after(end)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_a_disk_with_less_than_the_reserve_is_an_error_and_one_with_little_more_is_advice(tmp_path):
    assert machine.disk_space(tmp_path, reserve_mb=1_000_000_000).severity is Severity.ERROR
    with small_disk(tmp_path / "disk", size="8m") as disk:
        assert machine.disk_space(disk / "not" / "yet", reserve_mb=1).severity is Severity.OK
        (disk / "world").write_bytes(bytes(6_500_000))
        found = machine.disk_space(disk, reserve_mb=1)
        assert (found.severity, "have to stay free" in found.found) == (Severity.ADVICE, True)
        assert found.command.startswith(f"du -xh --max-depth=2 {disk} ")


def test_a_disk_without_inodes_is_an_error_and_nothing_is_made_on_it(tmp_path):
    with small_disk(tmp_path / "disk", size="1m,nr_inodes=20") as disk:
        found = machine.inodes(disk)
        assert (found.severity, found.found.startswith("19 of 20 inodes")) == (Severity.ERROR, True)
        assert list(disk.iterdir()) == []
    with small_disk(tmp_path / "large", size="1m,nr_inodes=24000") as disk:
        for number in range(23_400):
            os.mknod(disk / str(number))
        assert machine.inodes(disk).severity is Severity.ERROR
        for number in range(500):
            (disk / str(number)).unlink()
        assert machine.inodes(disk).severity is Severity.ADVICE
    assert machine.inodes(pathlib.Path("/proc")).severity is Severity.OK, "it has no number of them"


def test_memory_that_is_nearly_used_up_is_advice():
    real = pathlib.Path("/proc/meminfo").read_text()
    total = int(real.split()[1])
    lines = [
        f"MemAvailable: {total // 100} kB" if "MemAvailable" in line else line for line in real.splitlines()
    ]
    assert machine.memory("\n".join(lines)).severity is Severity.ADVICE
    assert machine.memory(real.replace("MemAvailable:", "MemAvailable: 1" + "0" * 12)).severity is Severity.OK


def test_files_of_the_future_tell_that_the_clock_went_back(tmp_path):
    log = tmp_path / "daemon.log"
    log.touch()
    now = dt.datetime.now(dt.UTC)
    assert machine.clock(now, synchronised=True, written=[log, tmp_path / "none"]).severity is Severity.OK
    assert machine.clock(now, synchronised=False, written=[log]).severity is Severity.ADVICE
    os.utime(log, (time.time(), time.time() + 3.5 * 86_400))
    found = machine.clock(now, synchronised=True, written=[log])
    assert (found.severity, "3 days after now" in found.found) == (Severity.ERROR, True)
    assert isinstance(machine.synchronised(), bool)


def test_a_low_limit_of_open_files_is_advice():
    text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 {}               files\n"
    assert machine.open_files(text.format(4096), unit="u").severity is Severity.ADVICE
    assert machine.open_files(text.format(65_536), unit="u").severity is Severity.OK
    assert machine.open_files(text.format("unlimited"), unit="u").severity is Severity.OK
    assert machine.open_files(pathlib.Path("/proc/self/limits").read_text(), unit="u").found


@pytest.mark.parametrize(
    ("end", "severity", "words"),
    [
        (NOW - 2 * WEEK, Severity.ERROR, "it expired 14 days ago, on 18 May 2026"),
        (NOW + WEEK / 2, Severity.ADVICE, "it is valid for 3 days, until 04 Jun 2026"),
        (NOW + 4 * WEEK, Severity.OK, "it is valid for 28 days, until 29 Jun 2026"),
    ],
)
def test_a_certificate_is_looked_at_before_it_expires(end: dt.datetime, severity: Severity, words: str):
    found = machine.expiry(expiring(end), now=NOW, soon=WEEK, whose="it", command="renew")
    assert (found.severity, found.found) == (severity, words)


def test_a_certificate_of_the_future_is_an_error():
    pem = expiring(NOW + 9 * WEEK, begin=NOW + WEEK)
    found = machine.expiry(pem, now=NOW, soon=WEEK, whose="it", command="")
    assert (found.severity, found.found) == (Severity.ERROR, "it is valid from 08 Jun 2026 00:00 UTC on")


def test_a_role_that_does_not_run_is_advice(tmp_path):
    assert machine.process(os.getpid(), "daemon", tmp_path).severity is Severity.OK
    found = machine.process(0, "daemon", tmp_path)
    assert (found.severity, bool(found.command)) == (Severity.ADVICE, True)


def test_a_check_that_fails_or_hangs_is_advice_and_holds_up_no_other():
    hanging = threading.Event()

    def refuse() -> None:
        raise Rejected(Code.FORMAT_INVALID, "it is damaged", hint="restore it")

    looks = {
        "fine": lambda: ok("it works"),
        "missing": lambda: pathlib.Path("/proc/none").read_text(),
        "odd": lambda: int("no number"),
        "locked": lambda: (_ for _ in ()).throw(PermissionError(13, "Permission denied", "/secret")),
        "refused": refuse,
        "hanging": lambda: hanging.wait(20),
    }
    why = dict.fromkeys(looks, "It matters.")
    found = {each.id: each for each in findings("node:n1", looks, why, again="corral doctor", seconds=0.5)}
    hanging.set()
    assert [each.severity.value for each in found.values()] == ["ok", *["advice"] * 3, "error", "advice"]
    assert (found["fine"].why, found["fine"].subject) == ("", "node:n1")
    assert "/proc/none" in found["missing"].found
    assert found["odd"].found.startswith("not checked: invalid literal")
    assert found["locked"].found == "not checked: no permission to read /secret"
    assert (found["refused"].found, found["refused"].why) == ("it is damaged", "restore it")
    assert found["hanging"].found == "not checked: there was no answer in time"
