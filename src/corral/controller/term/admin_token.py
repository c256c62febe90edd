"""A new administrator's token for a cluster whose tokens are lost, created on the controller's host without
the API; see `offline_change`."""

from __future__ import annotations

import functools
import pathlib

import msgspec

from corral.controller.accounts.users import administrator
from corral.controller.state.api_tokens import FIRST_USER, creation, mint
from corral.controller.state.ledger import Step, audit
from corral.controller.term.cluster_init import ADMIN_TOKEN_FILE
from corral.controller.term.lost_store import put_aside
from corral.controller.term.offline_change import OfflineCluster, change_offline, claimed
from corral.domain.permissions import Role
from corral.system.controller_config import ControllerConfig
from corral.system.files import atomic_write


class MadeToken(msgspec.Struct, frozen=True, kw_only=True):
    """The created token; its text is only in the file."""

    id: str
    path: pathlib.Path


def make_admin_token(config: ControllerConfig) -> MadeToken:
    """Store a new ADMIN token and write its text to DATA/admin.token, mode 0600; an earlier file is renamed.

    DATA_DIRECTORY_LOCKED, CONFLICT and NOT_FOUND as in `claimed` and `change_offline`.
    """
    with claimed(config):
        return change_offline(config, functools.partial(_token, path=config.data / ADMIN_TOKEN_FILE))


async def _token(cluster: OfflineCluster, *, path: pathlib.Path) -> tuple[MadeToken, tuple[Step, ...]]:
    by, now = cluster.actor.name, cluster.clock.now()
    record, text = mint(name="lost-token", role=Role.ADMIN, created_by=by, now=now, entropy=cluster.entropy)
    _, owner = administrator(cluster.state, FIRST_USER, by=by, now=now)
    put_aside([path])
    atomic_write(path, f"{text}\n".encode())
    entry = audit(cluster.actor, "token.create", record.id)
    return MadeToken(id=record.id, path=path), (*owner, *creation(record), entry)
