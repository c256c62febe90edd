"""A small OpenAPI document with what the real one has little of, and with texts of somebody who means harm."""

from __future__ import annotations

import json
from typing import Any

MARKUP = "<img src=x onerror=\"document.title='harmed'\"><script>document.title='harmed'</script>"
UNSEEN = "a\u202eb\u0007c"
RECURSIVE: dict[str, Any] = {
    "type": "object",
    "description": "A part of itself.",
    "properties": {
        "part": {"anyOf": [{"$ref": "#/components/schemas/Whole"}, {"type": "null"}]},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Whole"}},
        "other": {"$ref": "#/components/schemas/Other"},
    },
}
OPERATION: dict[str, Any] = {
    "operationId": "put_things_id",
    "summary": f"Change {MARKUP}",
    "description": f"{MARKUP} `{UNSEEN}`",
    "tags": [f"things {MARKUP}"],
    "parameters": [
        {"name": "id", "in": "path", "required": True, "example": "a'b c", "schema": {"type": "string"}},
        {
            "name": "many",
            "in": "query",
            "schema": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 3},
            "description": MARKUP,
            "deprecated": True,
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Whole"},
                "example": {"given": "by the document, isn't it"},
            }
        },
    },
    "responses": {
        "200": {
            "description": "Changed.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Whole"}}},
            "links": {"again": {"operationId": "put_things_id", "parameters": {"id": "$response.body#/id"}}},
        },
        "404": {"$ref": "#/components/responses/404-NOT_FOUND"},
        "409": {"description": "Two codes.", "x-codes": ["CONFLICT", "GONE"]},
        "422": {"$ref": "#/components/responses/none-such"},
    },
    "security": [{"token": []}],
    "x-permission": "things.manage",
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": MARKUP, "version": MARKUP, "description": MARKUP},
    "paths": {"/api/v1/things/{id}": {"put": OPERATION}},
    "components": {
        "schemas": {
            "Whole": RECURSIVE,
            "Other": {"anyOf": [{"$ref": "#/components/schemas/Whole"}, {"type": "string"}]},
            "Endless": {"type": "array", "items": {"$ref": "#/components/schemas/Endless"}},
            "Missing": {"$ref": "#/components/schemas/NoneSuch"},
            MARKUP: {"title": MARKUP, "type": "object", "properties": {MARKUP: {"type": MARKUP}}},
            "__proto__": {
                "type": "object",
                "properties": {"__proto__": {"type": "string", "default": MARKUP}},
            },
        },
        "responses": {
            "404-NOT_FOUND": {
                "description": "- `NOT_FOUND`: there is no such thing",
                "x-codes": ["NOT_FOUND"],
                "headers": {"Retry-After": {"schema": {"type": "integer"}}},
            }
        },
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
}
TEXT = json.dumps(DOCUMENT)
