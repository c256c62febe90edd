"""A program that uses the client: every answer has its type, and what is wrong is found before it runs."""

from __future__ import annotations

from corral.client import AsyncClient, Client, models


def read(corral: Client) -> int | None:
    group: models.Group = corral.groups.scale("lobby", count=4, if_match=3)
    reveal: str = group.status.wanted  # E: assignment
    corral.groups.scale("lobby", count="4")  # E: arg-type
    corral.groups.scale("lobby", number=4)  # E: call-arg
    tried: models.DryRun = corral.groups.scale_dry_run("lobby", count=4)
    corral.groups.create({"name": "x"})
    corral.groups.create(models.NewGroup(name="x", max="9"))  # E: arg-type
    for instance in corral.instances.all(group="lobby", sort="-players"):
        if instance.state is models.InstanceState.RUNNING:
            return instance.port
    corral.instances.list(sort="players-")  # E: arg-type
    with corral.templates.export("lobby") as download:
        content: bytes = download.read()
    for event in corral.events.stream(types=["GROUP_SCALED"]):
        if isinstance(event, models.GroupScaledEvent):
            print(event.data.to, reveal, tried, content)
            print(event.data.nothing)  # E: attr-defined
    gone: None = corral.instances.delete("x")  # E: func-returns-value
    del gone
    return None


async def read_async(corral: AsyncClient) -> None:
    page: models.NodePage = await corral.nodes.list()
    print(corral.nodes.get("n").id)  # E: attr-defined
    async for summary in corral.nodes.all_summaries():
        print(summary.id, page.next)
