"""The list of event types."""

from __future__ import annotations

import httpx
import pytest
from http_rig import Rig

from corral.domain.events import EventType
from corral.domain.field_classes.event_data import EVENT_DATA, EVENT_PERMISSIONS
from corral.domain.permissions import Role


@pytest.mark.trap("T91")
async def test_every_type_is_listed_with_its_permission_and_the_class_of_each_field(rig: Rig) -> None:
    _, text = await rig.token(Role.VIEWER)
    async with rig.client(text) as viewer:
        page = (await viewer.get("/api/v1/events/types")).json()
    assert page["next"] is None
    found = {item["type"]: item for item in page["items"]}
    assert list(found) == list(EventType)
    for type, item in found.items():
        classes = {field["name"]: field["class"] for field in item["fields"]}
        assert classes == {name: kind.value for name, kind in EVENT_DATA[EventType(type)].items()}
        assert (item["permission"] == "events.read") == (type not in EVENT_PERMISSIONS)
    crashed = found["INSTANCE_CRASHED"]
    assert (crashed["resource"], crashed["to_nodes"]) == ("instance", True)
    assert found["TOKEN_CREATED"]["permission"] == "tokens.read"
    assert {"name": "line", "class": "sensitive"}.items() <= found["INSTANCE_COMMAND"]["fields"][2].items()


async def test_the_document_of_the_api_has_the_frame_of_each_type(client: httpx.AsyncClient) -> None:
    document = (await client.get("/api/v1/openapi.json")).json()
    schemas = document["components"]["schemas"]
    stream = document["paths"]["/api/v1/events/stream"]["get"]["responses"]["200"]["content"]
    assert stream["text/event-stream"]["x-event"] == {"$ref": "#/components/schemas/EventFrame"}
    mapping = schemas["EventFrame"]["discriminator"]["mapping"]
    assert set(mapping) == {*EventType, "RESYNC_REQUIRED"}
    for type, ref in mapping.items():
        frame = schemas[ref.rpartition("/")[2]]
        assert frame["properties"]["type"]["const"] == type
        if type != "RESYNC_REQUIRED":
            data = schemas[frame["properties"]["data"]["$ref"].rpartition("/")[2]]
            assert set(data["properties"]) == set(EVENT_DATA[EventType(type)])
            assert all("x-class" in field and field["description"] for field in data["properties"].values())
