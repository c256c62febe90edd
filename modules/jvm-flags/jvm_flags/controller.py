"""The controller's part: keeps the flags, takes changes, tells the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from corral.sdk import (
    CapabilityBinding,
    Collection,
    CommandCall,
    CommandParameter,
    Commands,
    HttpError,
    ModuleContext,
    PlatformModule,
    Request,
    Routes,
)
from jvm_flags.contract import GroupFlags, JvmFlags
from jvm_flags.rules import flags_problem, group_problem


class NewFlags(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `PUT /flags/{group}`."""

    flags: list[str]


class KeptFlags(PlatformModule):
    """One document a group. Provides `corral.jvm.flags`, `/flags` and the commands `jvm-flags …`."""

    ctx: ModuleContext
    kept: Collection[GroupFlags]

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.kept = ctx.require_document_storage().collection("flags", GroupFlags)

    def capability_handles(self) -> Sequence[CapabilityBinding[Any]]:
        return [CapabilityBinding("corral.jvm.flags", JvmFlags, lambda: self)]

    async def all(self) -> list[GroupFlags]:
        found = [stored.value async for stored in self.kept.find()]
        return sorted(found, key=lambda row: row.group)

    async def put(self, group: str, flags: list[str]) -> GroupFlags:
        """Keep them in place of what there was, and tell the nodes. HttpError for what cannot be used."""
        if problem := flags_problem(flags):
            raise HttpError(400, problem, field="flags")
        row = GroupFlags(group=_checked(group), flags=list(dict.fromkeys(flags)))
        await self.kept.replace(group, row, upsert=True)
        await self.ctx.events.publish("FLAGS_CHANGED", row, subject=group)
        return row

    async def clear(self, group: str) -> bool:
        """False when the group had none."""
        if not await self.kept.delete(_checked(group)):
            return False
        await self.ctx.events.publish("FLAGS_CHANGED", GroupFlags(group=group, flags=[]), subject=group)
        return True

    # --- routes ---------------------------------------------------------------------------------
    def register_routes(self, routes: Routes) -> None:
        reading, changing = "groups.read", "groups.manage"  # a flag can do what a group's command can
        one = "/flags/{group}"
        routes.get(
            "/flags", self.list_flags, permission=reading, answer=list[GroupFlags], summary="All flags."
        )
        routes.get(one, self.show_flags, permission=reading, answer=GroupFlags, summary="Those of one group.")
        routes.put(
            one,
            self.set_flags,
            permission=changing,
            body=NewFlags,
            answer=GroupFlags,
            summary="Set a group's.",
        )
        routes.delete(one, self.drop_flags, permission=changing, summary="A group has no flags any more.")

    async def list_flags(self, request: Request) -> list[GroupFlags]:
        return await self.all()

    async def show_flags(self, request: Request) -> GroupFlags:
        group = _checked(request.parameters["group"])
        found = await self.kept.get(group)
        if found is None:
            raise _none(group)
        return found.value

    async def set_flags(self, request: Request) -> GroupFlags:
        return await self.put(request.parameters["group"], request.body.flags)

    async def drop_flags(self, request: Request) -> None:
        group = request.parameters["group"]
        if not await self.clear(group):
            raise _none(group)

    # --- commands -------------------------------------------------------------------------------
    def register_commands(self, commands: Commands) -> None:
        group = CommandParameter("group", help="or * for every group")
        flag = CommandParameter("flag", help="one or more, such as -Xlog:gc*")
        changing = "groups.manage"
        commands.add(
            "jvm-flags list", self.list_command, help="The flags of all groups.", permission="groups.read"
        )
        commands.add(
            "jvm-flags set",
            self.set_command,
            help="Flags for a group, in place of what it had.",
            parameters=[group, flag],
            permission=changing,
        )
        commands.add(
            "jvm-flags clear",
            self.clear_command,
            help="No flags for a group any more.",
            parameters=[group],
            permission=changing,
        )

    async def list_command(self, call: CommandCall) -> Sequence[str]:
        return [_line(row) for row in await self.all()] or ["no group has flags"]

    async def set_command(self, call: CommandCall) -> str:
        try:
            return _line(await self.put(call.named["group"], [*call.arguments[1:]]))
        except HttpError as error:
            return str(error)

    async def clear_command(self, call: CommandCall) -> str:
        group = call.named["group"]
        try:
            return f"{group}: no flags" if await self.clear(group) else f"{group} had no flags"
        except HttpError as error:
            return str(error)


def _checked(group: str) -> str:
    if problem := group_problem(group):
        raise HttpError(400, problem, field="group")
    return group


def _line(row: GroupFlags) -> str:
    return f"{row.group}: {' '.join(row.flags) or 'no flags'}"


def _none(group: str) -> HttpError:
    return HttpError(404, f"group '{group[:80]}' has no flags", hint="PUT gives it some")
