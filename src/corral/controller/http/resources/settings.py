"""Settings: the configuration of the controller that is in effect."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import Read, Route
from corral.domain.permissions import Permission


class SettingsShape(msgspec.Struct, frozen=True, kw_only=True):
    """The settings by section, as `corral controller --print-config` has them, without users and passwords of addresses."""

    controller: dict[str, Any]


async def get_settings(setting: ProcessContext, call: ApiCall[None, NoQuery]) -> SettingsShape:
    del call
    return SettingsShape(controller=dict(setting.configuration))


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/settings",
        permission=Permission.SETTINGS_READ,
        summary="The settings of the controller that leads, without secrets",
        response=SettingsShape,
        handler=get_settings,
    ),
)
