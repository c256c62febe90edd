"""The part on a node: adds the flags to each JVM that starts there."""

from __future__ import annotations

import msgspec

from corral.sdk import CapabilityHandle, DaemonModule, Event, HostError, InstanceSpec, ModuleContext
from jvm_flags.contract import GroupFlags, JvmFlags, flags_for

MEMORY = ".corral-jvm-flags.json"
"""In the directory of an instance: what it was given the last time."""
REQUEST_SECONDS = 1.0
"""Less than a hook may take: a controller that does not answer costs a start this second, and no flags."""
_LINES = msgspec.json.Decoder(list[str])


class AddedFlags(DaemonModule):
    """Asks for all flags when an instance starts, and adds those of its group. What it goes by when nobody answers
    is kept current meanwhile."""

    ctx: ModuleContext
    flags: CapabilityHandle[JvmFlags]
    known: list[GroupFlags] | None = None
    """As the controller told them last; None: it has told nothing since this module was started."""
    current = False
    """Nothing was missed since `known` was read."""

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.flags = ctx.capabilities.require("corral.jvm.flags", JvmFlags, deadline=REQUEST_SECONDS)
        await ctx.events.subscribe("jvm-flags/FLAGS_CHANGED", self.follow)
        await self.learn()
        await ctx.scheduler.every(2, self.catch_up, name="catch up")
        await ctx.scheduler.every(300, self.learn, name="learn anew")

    async def follow(self, event: Event) -> None:
        """Flags changed, or events were missed (`EVENTS_MISSED`): either way the whole list is read again."""
        await self.learn()

    async def catch_up(self) -> None:
        """Costs nothing while all is well: asks only when the controller was away and is back."""
        if not self.flags.available:
            self.current = False
        elif not self.current:
            await self.learn()

    async def learn(self) -> None:
        """All flags anew; what was known stays when nobody answers."""
        try:
            self.known, self.current = await self.flags.call.all(), True
        except HostError as error:
            self.current = False
            self.ctx.logger.debug("the flags could not be read: %s", error)

    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        if not spec.is_java:
            return
        await self.learn()  # milliseconds, and what was set a moment ago is in force
        if self.known is None:
            flags = await self.recall(spec.instance_id)
        else:
            flags = flags_for(spec.group, self.known)
            await self.remember(spec.instance_id, flags)
        spec.jvm_args.extend(flag for flag in flags if flag not in spec.jvm_args)

    async def recall(self, instance_id: str) -> list[str]:
        """What the instance got the last time; nothing where it never got any."""
        try:
            flags = _LINES.decode(await self.ctx.files.read(instance_id, MEMORY))
        except HostError:
            return []
        except (ValueError, RecursionError):  # somebody else wrote there
            self.ctx.logger.warning("%s of %s cannot be read", MEMORY, instance_id)
            return []
        self.ctx.logger.info(
            "%s gets the flags of its last start: no controller has answered yet", instance_id
        )
        return flags

    async def remember(self, instance_id: str, flags: list[str]) -> None:
        try:
            if flags:
                await self.ctx.files.write(instance_id, MEMORY, msgspec.json.encode(flags))
            else:
                await self.ctx.files.remove(instance_id, MEMORY)
        except HostError as error:
            self.ctx.logger.warning("the flags of %s cannot be remembered: %s", instance_id, error)
