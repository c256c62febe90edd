"""Classes of the fields of log records, by name: the same name means the same everywhere.

Records that modules write have names of their own: what is not listed here is hidden from callers who may read logs
without `instances.sensitive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from corral.domain.field_classes.field_class import FieldClass, fields

LOG_FIELDS: Final[Mapping[str, FieldClass]] = fields(
    open=(
        "actor acts admin_login after archives artifact attach attempt attempts batch before begin blamed "
        "bytes call capabilities capability causes certificate cgroups changed cluster code commit "
        "commits confirmed consumer copy count current cursor data decision digest directory document "
        "drain dropped ended epoch error_id events expires file files follower former found generation "
        "group groups hash head held holder hook hosts ids incarnation instance instances isolate "
        "isolated kept kept_as key key_sha256 kind labels leader left lent lines listener live manifest "
        "messages method min_alive_ms mode module modules most name names next node noted open order "
        "orders ours outcome owner page path pause pid place plan port principal process processes protocol "
        "provider reader ready refused removed_in repeated reports request reservations revision role route "
        "rows run runs runtimes seconds seconds_left sending sendings sent sequence serial session sha256 "
        "shim silent since size slot spool stage state status steps stored strays subscriber suspects "
        "target task tasks template theirs to took_ms transactions type unfinished unsaid until upload "
        "usable used_ms user version wait_seconds waiting where"
    ),
    text="context detail error hint how meaning reason seen subject why",
    url="url",
    # Addresses of people; lines of stop ladders; what modules raised or wrote, and command lines of theirs.
    sensitive="address callers lingering peer rung stack story traceback",
)
