"""Every event type has a schema: a meaning, and the type, meaning, class and an example of each field of its data."""

from __future__ import annotations

import pytest

from corral.domain.event_schemas.catalog import EVENT_SCHEMAS, data_fault, data_fields, example_data
from corral.domain.events import EventType
from corral.domain.field_classes.event_data import EVENT_DATA

WHERE = "declare it in src/corral/domain/event_schemas, in the file of its family, then run `make docs`"
SHORTEST = 10


@pytest.mark.trap("T91")
def test_every_event_type_has_a_schema_and_a_meaning() -> None:
    assert set(EVENT_SCHEMAS) == set(EventType), WHERE
    assert [type for type, schema in EVENT_SCHEMAS.items() if len(schema.meaning) < SHORTEST] == [], WHERE


@pytest.mark.trap("T91")
def test_every_field_of_an_events_data_has_a_class_and_nothing_else_has_one() -> None:
    for type in EventType:
        assert {field.name for field in data_fields(type)} == set(EVENT_DATA[type]), type


@pytest.mark.trap("T96")
def test_every_field_of_an_events_data_has_a_type_a_meaning_and_an_example() -> None:
    for type in EventType:
        for field in data_fields(type):
            assert field.type, (type, field)
            assert len(field.meaning) >= SHORTEST, (type, field, WHERE)


@pytest.mark.parametrize("type", EventType)
def test_the_examples_of_an_event_are_valid(type: EventType) -> None:
    assert data_fault(type, example_data(type), whole=True) == ""


def test_types_that_share_a_schema_share_the_classes_of_its_fields() -> None:
    classes: dict[object, object] = {}
    for type, schema in EVENT_SCHEMAS.items():
        assert classes.setdefault(schema.data, EVENT_DATA[type]) == EVENT_DATA[type], type


def test_data_that_differs_from_its_schema_is_found() -> None:
    type = EventType.GROUP_SCALED
    whole = {"from": 1, "to": 2, "decision": "dec-1"}
    assert data_fault(type, whole, whole=True) == ""
    assert "unknown field `who`" in data_fault(type, {**whole, "who": "anna"})
    assert "got `str`" in data_fault(type, {**whole, "to": "2"})
    assert data_fault(type, {"from": 1}) == "", "what is there is as declared"
    assert "missing required field `to`" in data_fault(type, {"from": 1}, whole=True)
