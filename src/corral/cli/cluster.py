"""`corral cluster`: the cluster as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Item, plain, show_done, show_list, show_one

CLUSTER: Final = "/api/v1/cluster"


@click.group()
def cluster() -> None:
    """The cluster as a whole."""


@cluster.command()
@api_command
def status(session: ApiSession) -> None:
    """Who leads, under which epoch, and on what store."""
    found = session.client.get(CLUSTER)
    show_one(session.output, found, rows=_rows(found))


def _rows(found: Item) -> list[tuple[str, str]]:
    """Every field that the controller returns, nested ones by their path: a newer controller may return more."""
    rows: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{prefix} {key}".strip(), inner)
        elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
            for number, inner in enumerate(value, 1):
                rows.append((f"{prefix} {number}".capitalize(), plain(inner)))
        else:
            rows.append((prefix.replace("_", " ").capitalize(), plain(value)))

    walk("", found)
    return rows


@cluster.command()
@api_command
def settings(session: ApiSession) -> None:
    """Show the controller's settings, without secrets."""
    found = session.client.get("/api/v1/settings")
    show_one(session.output, found, rows=list(_keys("", found["controller"])))


def _keys(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Keys as the configuration has them, with their values."""
    if not isinstance(value, dict) or not value:
        yield prefix, plain(value)
        return
    for key, inner in value.items():
        yield from _keys(f"{prefix}.{key}" if prefix else key, inner)


@cluster.command(hidden=True)
@api_command
def nodes(session: ApiSession) -> None:
    """List the nodes, as 'node list' does. Universe's console has this."""
    from corral.cli.node import COLUMNS, NODES

    show_list(session.output, session.client.pages(NODES), columns=COLUMNS, by_name=True)


@cluster.command()
@click.option("--reason", default="", help="Why; it is in the audit and in the controller's log.")
@yes_option
@api_command
def shutdown(session: ApiSession, reason: str, yes: bool) -> None:
    """End the controller that leads; instances go on.

    It is not started again by 'corral up' or systemd. Another controller takes the lead, if there is one. 'corral node shutdown'
    ends a daemon, and its instances.
    """
    confirm(
        f"end the controller at {session.client.url} (instances go on, and none is started or replaced without it)",
        yes=yes,
    )
    done = session.client.post(f"{CLUSTER}/shutdown", {"reason": reason})
    show_done(session.output, done, f"the controller at {done['http']} ends; instances go on", name="holder")


@cluster.command("raise-epoch")
@yes_option
@api_command
def raise_epoch(session: ApiSession, yes: bool) -> None:
    """Raise the epoch after a restore from a backup. It is raised by 2³², so that nodes obey the restored controller."""
    confirm("raise the epoch of the whole cluster", yes=yes)
    found = session.client.post(f"{CLUSTER}/raise-epoch")
    show_done(
        session.output, found or {}, f"the epoch is now {plain((found or {}).get('epoch'))}", name="epoch"
    )


@cluster.command("repair-sequence")
@yes_option
@api_command
def repair_sequence(session: ApiSession, yes: bool) -> None:
    """Repair an exhausted counter of starts. It is set just above the highest number in use."""
    confirm("set the counter of starts by what the records use", yes=yes)
    found = session.client.post(f"{CLUSTER}/repair-sequence") or {}
    next_start = int(found.get("highest_used", 0)) + 1
    show_done(session.output, found, f"the next start has number {next_start}", name="highest_used")


@cluster.command("admin-certificate")
@click.argument("name")
@click.option(
    "--out", "directory", metavar="DIR", required=True, help="Where the three files go; made if missing."
)
@api_command
def admin_certificate(session: ApiSession, name: str, directory: str) -> None:
    """Make a client certificate for the gRPC API. The key is made here and certified for the AdminService; key, certificate and CA are written."""
    paths = {part: os.path.join(directory, f"{name}.{part}") for part in ("key", "crt")}  # noqa: PTH118
    paths["ca"] = os.path.join(directory, "ca.crt")  # noqa: PTH118
    if os.path.basename(name) != name or name in ("", ".", ".."):  # noqa: PTH119
        raise CommandRefused(f"'{name}' cannot be the name of a file", hint="use letters, digits and dashes")
    if os.path.exists(paths["key"]):  # noqa: PTH110
        raise CommandRefused(f"{paths['key']} exists already", hint="choose another name or directory")
    key_pem, csr_pem = _new_request(name)
    made = session.client.post(f"{CLUSTER}/certificates", {"name": name, "csr_pem": csr_pem})
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        _write(paths["key"], key_pem)
        _write(paths["crt"], made["certificate_pem"])
        _write(paths["ca"], made["ca_pem"])
    except OSError as error:
        raise CommandRefused(f"cannot write {error.filename}: {error.strerror}") from error
    show_done(session.output, {"name": name, **paths}, f"wrote {', '.join(paths.values())}", name="name")


def _new_request(name: str) -> tuple[str, str]:
    """A fresh key, which never leaves this machine, and a request for a certificate of it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem.decode(), request.public_bytes(serialization.Encoding.PEM).decode()


def _write(path: str, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
