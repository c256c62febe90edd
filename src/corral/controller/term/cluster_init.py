"""Creation of a cluster at its first start: its identity, its certificate authority, its first administrator."""

from __future__ import annotations

import pathlib
from typing import Final

import structlog

from corral.controller.accounts.users import first_user
from corral.controller.instances.group_format_upgrade import GROUP_FORMAT
from corral.controller.state.api_tokens import FIRST_USER, first_admin
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import AUTHORITY, CLUSTER, ONLY, TOKENS
from corral.controller.state.ledger import SYSTEM, Ledger, Step, audit
from corral.controller.term.lost_store import database_lost, put_aside
from corral.domain.events import Draft, EventType
from corral.domain.ids import ClusterId
from corral.domain.records import AuthorityRecord, ClusterRecord
from corral.errors import Code, Rejected
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey
from corral.store.port import ABSENT
from corral.system.clock import Clock
from corral.system.entropy import Entropy, new_id
from corral.system.files import atomic_write

ADMIN_TOKEN_FILE: Final = "admin.token"  # noqa: S105 - the name of the file
_MARKER: Final = "founding"
"""The marker file that exists from before a new cluster's key is made until the cluster is stored."""
_log = structlog.get_logger("corral.controller.term")


async def found_cluster(
    *,
    ledger: Ledger,
    data: pathlib.Path,
    key_path: pathlib.Path,
    clock: Clock,
    entropy: Entropy,
    on_purpose: bool = False,
) -> None:
    """Create the documents of a new cluster in one transaction; does nothing where a cluster exists.

    The administrator's token is on disk before the cluster is stored: a crash in between leaves a token that
    nothing accepts, and the next start replaces it. Raises CONFLICT where the key or the token of an earlier
    cluster exists, unless `on_purpose` is set; and with `on_purpose` where the cluster exists already.
    """
    begun = data / _MARKER
    if ledger.state.cluster.find(ONLY) is not None:
        begun.unlink(missing_ok=True)
        if on_purpose:
            raise Rejected(
                Code.CONFLICT,
                f"the store holds cluster '{ledger.state.identity.id}' already",
                hint="leave out --found-cluster: it is for one start, after a cluster was given up",
            )
        return
    former = [path for path in (key_path, data / ADMIN_TOKEN_FILE) if path.exists()]
    if former and not on_purpose and not begun.exists():
        raise database_lost("the store holds no cluster", former, data)
    if not begun.exists():
        put_aside([data / ADMIN_TOKEN_FILE])
    atomic_write(begun, b"")
    cluster_key = ClusterKey.load(key_path) or ClusterKey.create(key_path, entropy)
    cluster_id = ClusterId(new_id("c", entropy).removeprefix("c-"))
    sealed = Authority.create(cluster=cluster_id, cluster_key=cluster_key, clock=clock, entropy=entropy)
    token, text = first_admin(clock.now(), entropy)
    atomic_write(data / ADMIN_TOKEN_FILE, f"{text}\n".encode())
    steps: list[Step] = [
        CLUSTER.put(
            ONLY,
            ClusterRecord(id=cluster_id, created_at=clock.now(), group_format=GROUP_FORMAT),
            expect=ABSENT,
        ),
        AUTHORITY.put(ONLY, AuthorityRecord(active=sealed), expect=ABSENT),
        *first_user(clock.now()),
        TOKENS.put(token.id, token, expect=ABSENT),
        Draft(type=EventType.CLUSTER_CREATED, subject=cluster_id),
        Draft(type=EventType.TOKEN_CREATED, subject=token.id, data={"name": token.name, "role": token.role}),
        audit(SYSTEM, "cluster.create", cluster_id),
    ]
    await ledger.commit(*steps)
    begun.unlink()
    _log.info("cluster.created", cluster=cluster_id, admin_login=str(data / ADMIN_TOKEN_FILE))


async def ensure_first_user(ledger: Ledger, clock: Clock) -> None:
    """Give a cluster from before there were users its first one, who owns all its tokens."""
    if not len(ledger.state.users):
        await ledger.commit(*first_user(clock.now()), audit(SYSTEM, "users.create", FIRST_USER))


def open_authority(state: ClusterState, *, key_path: pathlib.Path, clock: Clock) -> Authority:
    """The cluster's authority, unsealed with this controller's copy of the cluster key."""
    cluster_key = ClusterKey.load(key_path)
    if cluster_key is None:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"there is no cluster key at {key_path}",
            hint="copy the cluster key file from another controller of this cluster",
        )
    return Authority.open(
        state.authorities.active, cluster=state.identity.id, cluster_key=cluster_key, clock=clock
    )


def trusted_ca_pem(state: ClusterState) -> bytes:
    """The certificates of all authorities that peers trust, the issuing one first."""
    record = state.authorities
    return "".join(a.certificate_pem for a in (record.active, *record.retiring)).encode()
