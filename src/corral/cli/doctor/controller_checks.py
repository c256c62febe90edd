"""Checks of a controller on this machine: its ports, store, keys and administrators."""

from __future__ import annotations

import datetime as dt
import errno
import functools
import os
import pathlib
import socket
import stat
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from corral.cli.doctor import machine_checks as machine
from corral.cli.doctor.findings import Looks, Verdict, advice, error, ok
from corral.cli.doctor.node_programs import socket_owners
from corral.cli.doctor.running_role import RunningRole
from corral.cli.doctor.stored_cluster import StoredCluster, read_store
from corral.cli.terminal.values import size_text
from corral.controller.accounts.users import is_admin
from corral.controller.http.server.served_certificate import CertificatePair, load_pair
from corral.daemon.probes.listening_sockets import SocketTables
from corral.errors import CorralError, counted
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey
from corral.store.engine_selection import is_embedded
from corral.store.sqlite.engine import DATABASE
from corral.system.addresses import parse_address
from corral.system.config import ControllerConfig
from corral.system.http_config import HttpSection
from corral.system.listening import bind_problem
from corral.system.oidc_config import is_loopback

UNIT: Final = "corral-controller"
_RESERVE_MB: Final = 256
_SOON: Final = dt.timedelta(days=14)
_AUTHORITY_SOON: Final = dt.timedelta(days=180)
_POSTGRES: Final = 5432
_PORT: Final = "The controller does not start without its ports, or people and nodes do not reach it."
WHY: Final = {
    **machine.WHY,
    "process": "Nothing is decided meanwhile. If yours is in another directory, name it with --data or --config.",
    "http-port": _PORT,
    "grpc-port": _PORT,
    "bootstrap-port": _PORT,
    "store": "Without its store the controller does not start.",
    "authority": "Certificates that it issues do not outlast it: nodes cannot join or connect.",
    "cluster-key": "With it and the store anybody is the cluster's authority; without it nobody is.",
    "administrator": "Users, nodes and modules can be managed by nobody else.",
    "disk-space": "No change can be stored then: nothing is started, scaled or deployed.",
    "tls": "Browsers, the command line and instances trust the controller by its certificate.",
    "public-url": "Pages, logins and instances are given this address.",
}


def controller_looks(role: RunningRole[ControllerConfig]) -> Looks:
    config, pid = role
    data, http, now = config.data, config.http, dt.datetime.now(dt.UTC)
    ports = {"http": http.listen, "grpc": config.grpc.listen}
    if config.bootstrap.enabled:
        ports["bootstrap"] = str(config.bootstrap_address)
    looks: Looks = {
        "process": lambda: machine.process(pid, "controller", data),
        **{f"{name}-port": functools.partial(port, listen, name, pid) for name, listen in ports.items()},
        "tls": lambda: tls(http, now),
        "public-url": lambda: public_url(http),
        **machine.machine_looks(data, pid, reserve_mb=_RESERVE_MB, unit=UNIT, written=[data / DATABASE]),
    }
    if not is_embedded(config.store.url):
        return {**looks, "store": lambda: database_server(config.store.url)}
    stored = functools.cache(lambda: read_store(data))

    def of_store(look: Callable[[StoredCluster], Verdict]) -> Verdict:
        try:
            found = stored()
        except (CorralError, OSError):
            return advice("not checked: the store cannot be read", "", "The check 'store' has the reason.")
        return look(found)

    return {
        **looks,
        "store": lambda: store(stored(), now),
        "authority": lambda: of_store(lambda found: authority(found, now)),
        "cluster-key": lambda: of_store(lambda found: cluster_key(config.cluster_key_path, found)),
        "administrator": lambda: of_store(lambda found: administrator(found, now, data)),
    }


def port(listen: str, name: str, pid: int) -> Verdict:
    """`pid`: the running controller; 0: it does not run, and has to find the port free."""
    address = parse_address(listen, any_port=True)
    table = SocketTables().seen_by(pid or os.getpid())
    sockets = table.by_port.get((address.port, "tcp"), set()) if table else set()
    if pid and address.port:
        if sockets:
            return ok(f"{listen}, where the controller listens")
        return error(f"the controller does not listen on {listen}", "corral logs controller --tail 20")
    problem = bind_problem(address)
    if problem is None:
        return ok(f"{listen}, {'which is free' if address.port else 'any free port'}")
    if problem == errno.EADDRINUSE:
        owner = next(filter(None, socket_owners(sockets).values()), "another program")
        return error(f"{listen} is in use by {owner}", f"ss -lntp 'sport = {address.port}'")
    return error(f"{listen} cannot be used: {os.strerror(problem)}", f"corral controller --{name} HOST:PORT")


def database_server(url: str) -> Verdict:
    """Only whether it can be reached: to open a store is to bring it up to date."""
    parts = urlsplit(url)
    host, number = parts.hostname or "localhost", parts.port or _POSTGRES
    try:
        with socket.create_connection((host, number), timeout=machine.PROGRAM_SECONDS):
            return ok(f"PostgreSQL answers at {host}:{number}; what it holds is not looked at")
    except OSError as failure:
        reason = failure.strerror or str(failure)
        return error(f"no PostgreSQL at {host}:{number}: {reason}", f"pg_isready -h {host} -p {number}")


def store(found: StoredCluster, now: dt.datetime) -> Verdict:
    age = machine.rough((now - found.written).total_seconds())
    return ok(f"SQLite, {size_text(found.size)}, {counted(found.commits, 'commit')}, last written {age} ago")


def authority(found: StoredCluster, now: dt.datetime) -> Verdict:
    (record,) = found.authorities
    pem, whose = record.active.certificate_pem, "the cluster's authority"
    return machine.expiry(pem, now=now, soon=_AUTHORITY_SOON, whose=whose, command="corral cluster status")


def cluster_key(path: pathlib.Path, found: StoredCluster) -> Verdict:
    key = ClusterKey.require(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return error(f"other users can read {path}", f"chmod 600 {path}")
    for record in found.authorities:
        Authority.derived_key(record.active, cluster_key=key, purpose="doctor")
    return ok(f"{path} opens the authority's key")


def administrator(found: StoredCluster, now: dt.datetime, data: pathlib.Path) -> Verdict:
    """Whether somebody may do everything and can get in."""
    admins = [each for each in found.users if is_admin(each)]
    if able := [each for each in admins if each.password_hash]:
        return ok(f"{counted(len(able), 'administrator')} can log in by password")
    holders = {each.owner for each in found.tokens if each.expires_at is None or each.expires_at > now}
    make = "corral user create NAME --role ADMIN "
    if holders & {each.name for each in admins}:
        why = "A token that is lost is not shown again, and the audit names no person."
        return advice("administrators have tokens alone, and no password", f"{make}--ask-password", why)
    return error("no administrator can log in", f"{make}--data {data}  # while the controller does not run")


def tls(http: HttpSection, now: dt.datetime) -> Verdict:
    if http.tls.mode == "cluster":
        return ok("the certificate comes from the cluster's authority, and is renewed by the controller")
    if http.tls.mode == "off":
        local = is_loopback(parse_address(http.listen, any_port=True).host)
        if local or http.public_url.startswith("https:"):
            return ok(f"plain HTTP, {'for this machine alone' if local else 'behind a proxy'}")
        why = "Anybody on the way can read tokens and passwords; see the guide 'TLS'."
        return advice(f"plain HTTP on {http.listen}", "CORRAL_HTTP_TLS_MODE=cluster corral controller", why)
    file, key = pathlib.Path(http.tls.certificate), pathlib.Path(http.tls.key)
    pem = file.read_bytes()
    load_pair(CertificatePair(certificate_pem=pem, key_pem=key.read_bytes(), source=str(file)))
    whose = f"the certificate in {file}"
    return machine.expiry(
        pem.decode(), now=now, soon=_SOON, whose=whose, command=f"openssl x509 -in {file} -text"
    )


def public_url(http: HttpSection) -> Verdict:
    url = http.public_url
    if not url:
        return ok(f"none; people and instances use {http.scheme}://{http.advertise or http.listen}")
    if url.startswith("http:") and http.scheme == "https":
        return error(f"{url} gets no answer: http.tls.mode is {http.tls.mode}", f"curl {url}/ready")
    if url.startswith("https:") and http.scheme == "http" and not http.trusted_proxies:
        why = "All callers count as one, the proxy: they share its limits, and the audit has its address for all of them."
        found = f"{url} leads through a proxy, and http.trusted_proxies is empty"
        return advice(found, "CORRAL_HTTP_TRUSTED_PROXIES=127.0.0.1 corral controller", why)
    try:
        socket.getaddrinfo(http.public_host, None)
    except (OSError, UnicodeError):
        return error(f"the host of {url} has no address", f"getent hosts {http.public_host}")
    return ok(url)
