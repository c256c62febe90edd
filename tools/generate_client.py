"""Generate `corral.client.generated` from the description of the API.

`python tools/generate_client.py` writes; `--check` compares and fails when the committed code is older than the route
table. Names of methods follow a rule (`method_name`); what it cannot say stands in the tables below, each with its reason.
"""

from __future__ import annotations

import argparse
import keyword
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.http.openapi import describe
from corral.controller.http.routes import ROUTES

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "corral" / "client" / "generated"
NOTICE = "Generated from the route table of the API by tools/generate_client.py; do not edit."
BASE = "/api/v1/"
JSON = "application/json"

LEFT_OUT: Final = {
    "GET /api/v1/auth/oidc/start": "a step of browsers, answered with a redirect",
    "GET /api/v1/auth/oidc/callback": "a step of browsers, answered with a redirect",
    "GET /api/v1/instances/{id}/console/ws": "a WebSocket; `instances.console_stream` has the same messages, `instances.command` sends lines",
}
"""Operations without a method, and why. Prefixes of others are in LEFT_OUT_BELOW."""
LEFT_OUT_BELOW: Final = {
    "/api/v1/templates/{group}/{name}": "the methods of templates take `GROUP/NAME` as a name",
    "/api/v1/modules/platform": "another name of what lies under `/api/v1/modules`, for clients of Universe",
    "/api/v1/modules/storage/": "another name of `modules.storage_drop`, for clients of Universe",
    "/api/v1/modules/capabilities": "another name of `capabilities.list`, for clients of Universe",
}
NAMED: Final = {
    "GET /health": ("probes", "health"),
    "GET /ready": ("probes", "ready"),
    "GET /metrics": ("probes", "metrics"),
    "GET /api/ping": ("probes", "ping"),
    "POST /api/v1/apply": ("groups", "apply"),
    "GET /api/v1/openapi.json": ("cluster", "openapi"),
    "GET /api/v1/modules/{id}/openapi.json": ("modules", "openapi"),
    "POST /api/v1/nodes/cache/prewarm": ("nodes", "cache_prewarm_all"),
    "POST /api/v1/modules": ("modules", "install"),
    "GET /api/v1/modules/{id}/{path}": ("modules", "get_route"),
    "POST /api/v1/modules/{id}/{path}": ("modules", "post_route"),
    "PUT /api/v1/modules/{id}/{path}": ("modules", "put_route"),
    "PATCH /api/v1/modules/{id}/{path}": ("modules", "patch_route"),
    "DELETE /api/v1/modules/{id}/{path}": ("modules", "delete_route"),
    "GET /api/v1/modules/{id}/frontend/{path}": ("modules", "frontend"),
}
"""Resource and method where the rule says nothing good."""
BY_REFERENCE: Final = {"install": "install_examined"}
"""The method that sends the JSON where a form is another way."""
STREAMED: Final = {"/api/v1/logs/stream": {"log": "LogShape"}}
"""Messages of streams whose description names none."""
SLASHED: Final = frozenset({("templates", "name")})
"""Parameters of paths that may hold a slash, beside the one that takes the rest."""
COMMAS: Final = frozenset({"types", "ids"})
"""Parameters that take several values separated by commas."""
SLOW: Final = (
    *("/prewarm", "/sync", "/save", "/raise-epoch", "/apply", "/groups/reload"),
    *("/files/content", "/files/archive", "/files/delete", "/files/rename", "/unpack"),
)
"""Ends of paths whose answers may take minutes; uploads and changes of modules are so, too."""
DRY_RUN: Final = "DryRunShape"
MOST_ARGUMENTS: Final = 12
"""A body of more fields is a structure, not arguments."""
WITHOUT: Final = frozenset({"dry_run", "view"})
ANY: Final = "Any"
TAKEN: Final = frozenset({"Any", "Final", "Iterator", "Literal", "Mapping", "Sequence", "Source", "Struct"})
"""Names that structures cannot have: the generated files import them."""


class Parameter(NamedTuple):
    """An argument of a method."""

    name: str
    """In Python."""
    wire: str
    type: str
    default: str | None
    meaning: str
    place: str
    """`path`, `query`, `field`, `body`, `content`, `part`, `header`."""


class Operation(NamedTuple):
    """A method of both clients."""

    resource: str
    name: str
    method: str
    path: str
    summary: str
    description: str
    permission: str
    parameters: tuple[Parameter, ...]
    kind: str
    """`json`, `text`, `none`, `download`, `stream`."""
    answer: str
    """Its type in Python; of a stream that of its messages."""
    kinds: str = ""
    bare: bool = False
    keyed: bool = False
    fixed: tuple[tuple[str, str], ...] = ()
    """Values of the query that the method has by its name."""
    harmless: bool = False
    item: str = ""
    """The type of the items, where it is a list of pages."""
    position: str = ""
    waits: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if parser.parse_args().check:
        if found := stale():
            print(f"the client is stale: {', '.join(found)}; run `make client`", file=sys.stderr)
        return 1 if found else 0
    files = generate()
    for path in OUT.rglob("*.py"):
        if str(path.relative_to(OUT)) not in files:
            path.unlink()
    for name, text in files.items():
        (OUT / name).parent.mkdir(parents=True, exist_ok=True)
        (OUT / name).write_text(text)
    return 0


def stale() -> list[str]:
    """The files that differ from what the route table says now."""
    fresh = generate()
    present = {str(path.relative_to(OUT)): path.read_text() for path in OUT.rglob("*.py")}
    return sorted(name for name in fresh.keys() | present.keys() if fresh.get(name) != present.get(name))


def document() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(describe(ROUTES))
    return found


def generate() -> dict[str, str]:
    """Every file by its name, formatted."""
    described = document()
    models = Models(described["components"]["schemas"])
    operations = list(read_operations(described, models))
    check_names(operations)
    files = {"__init__.py": f'"""{NOTICE}"""\n', **models.files(), **client_files(operations, models)}
    return formatted(files)


def formatted(files: dict[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        ruff = str(pathlib.Path(sys.executable).with_name("ruff"))
        config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--quiet"]
        ours = ["--config", 'lint.isort.known-first-party = ["corral"]']  # also what is not written yet
        subprocess.run(
            [ruff, "check", *config, *ours, "--select", "I,RUF022,RUF036", "--fix", scratch], check=True
        )
        subprocess.run([ruff, "format", *config, scratch], check=True)
        return {name: (place / name).read_text() for name in files}


# operations


def left_out(method: str, path: str, operation: dict[str, Any]) -> str:
    """Why there is no method for it; empty: there is one."""
    name = f"{method} {path}"
    if name in NAMED:
        return ""
    if not path.startswith(BASE):
        return "a path of Universe's: everything that it does has a route under `/api/v1`"
    if "101" in operation["responses"] and name not in LEFT_OUT:
        return "a WebSocket"
    return LEFT_OUT.get(name) or next(
        (why for start, why in LEFT_OUT_BELOW.items() if path.startswith(start)), ""
    )


def read_operations(described: dict[str, Any], models: Models) -> Iterator[Operation]:
    for path, methods in described["paths"].items():
        for verb, operation in methods.items():
            if not left_out(verb.upper(), path, operation):
                yield from Reader(verb.upper(), path, operation, methods, models).operations()


def method_name(method: str, path: str, siblings: Iterable[str], *, lists: bool) -> tuple[str, str]:
    """Resource and method by the rule: `list`, `get`, `create`, `update`, `put` and `delete` of the resource; below one,
    its own words for what is read or done, with a verb before them where a word alone would be two methods."""
    if (given := NAMED.get(f"{method} {path}")) is not None:
        return given
    resource, *rest = path.removeprefix(BASE).split("/")
    resource = resource.replace("-", "_")
    words = [word.replace("-", "_") for word in rest if not word.startswith("{") and word != "-"]
    ends_in_item = bool(rest) and rest[-1].startswith("{")
    if not words:
        verbs = {"GET": "get", "POST": "create", "PUT": "put", "PATCH": "update", "DELETE": "delete"}
        return resource, "list" if method == "GET" and not ends_in_item and lists else verbs[method]
    verb = {"GET": "get", "POST": "create", "PUT": "put", "PATCH": "update", "DELETE": "delete"}[method]
    if ends_in_item:
        return resource, "_".join([verb, *words[:-1], words[-1].removesuffix("s")])
    if method == "GET" or (method == "POST" and "get" not in siblings):
        return resource, "_".join(words)
    if method == "POST":
        return resource, "_".join([verb, *words[:-1], words[-1].removesuffix("s")])
    return resource, "_".join([verb, *words])


def check_names(operations: Iterable[Operation]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for each in operations:
        names = [each.name, *([walk_name(each)] if each.item else [])]
        for name in names:
            other = seen.setdefault((each.resource, name), f"{each.method} {each.path}")
            if other != f"{each.method} {each.path}" or names.count(name) > 1:
                raise SystemExit(
                    f"{each.resource}.{name} would be {other} and {each.method} {each.path}: add to NAMED"
                )
        arguments = [parameter.name for parameter in each.parameters]
        if len(set(arguments)) != len(arguments):
            raise SystemExit(f"{each.resource}.{each.name} has an argument twice: {arguments}")


def walk_name(operation: Operation) -> str:
    return (
        "all" + operation.name.removeprefix("list")
        if operation.name.startswith("list")
        else f"all_{operation.name}"
    )


def python_name(name: str) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name


class Reader:
    """Makes methods of one operation of the document."""

    def __init__(
        self, method: str, path: str, operation: dict[str, Any], siblings: Iterable[str], models: Models
    ) -> None:
        self.method = method
        self.path = path
        self.operation = operation
        self.models = models
        self.answers = self._answers()
        lists = any("items" in self.models.properties(answer) for answer in self.answers)
        resource, name = method_name(method, path, siblings, lists=lists)
        self.resource, self.name = resource, python_name(name)
        self.models.tag = self.resource

    def _answers(self) -> list[dict[str, Any]]:
        """The schemas of JSON answers of success, each once."""
        found: list[dict[str, Any]] = []
        for status, answer in self.operation["responses"].items():
            schema = answer.get("content", {}).get(JSON, {}).get("schema") if status.startswith("2") else None
            if schema is None:
                continue
            several = schema["anyOf"] if "anyOf" in schema and "discriminator" not in schema else [schema]
            found += [each for each in several if each not in found]
        return found

    def operations(self) -> Iterator[Operation]:
        media = next(
            (
                list(answer.get("content", {}))
                for status, answer in self.operation["responses"].items()
                if status.startswith("2") and answer.get("content")
            ),
            [],
        )
        base = self._operation(body=self._body())
        if "text/event-stream" in media:
            yield self._stream(base)
        elif media and JSON not in media:
            text = any(each.startswith("text/") for each in media)
            kind, answer = ("text", "str") if text else ("download", "None")
            yield base._replace(kind=kind, answer=answer)
        else:
            yield from self._json(base)

    def _json(self, base: Operation) -> Iterator[Operation]:
        query = {each["name"] for each in self.operation["parameters"] if each["in"] == "query"}
        dry = [each for each in self.answers if self.models.wire_name(each) == DRY_RUN]
        usual = [each for each in self.answers if each not in dry]
        compact = [each for each in usual[1:] if "view" in query]
        yield self._answering(base, usual[0] if usual else None)
        content = self.operation.get("requestBody", {}).get("content", {})
        if "multipart/form-data" in content and JSON in content:
            other = self._operation(body=self._json_body(content[JSON]["schema"], required=True))
            yield self._answering(
                other._replace(name=BY_REFERENCE[base.name], waits="UPLOAD_SECONDS"), usual[0]
            )
        if dry:
            tried = base._replace(
                name=f"{base.name}_dry_run",
                keyed=False,
                harmless=True,
                fixed=(("dry_run", "True"),),
                parameters=tuple(each for each in base.parameters if each.name != "idempotency_key"),
                description="Answers what it would do, and does nothing.",
            )
            yield self._answering(tried, dry[0])
        for each in compact:
            name = f"{base.name}_summaries"
            yield self._answering(base._replace(name=name, fixed=(("view", '"summary"'),)), each)

    def _answering(self, operation: Operation, schema: dict[str, Any] | None) -> Operation:
        if schema is None:
            return operation._replace(kind="none", answer="None")
        properties = self.models.properties(schema)
        names = {each.wire for each in operation.parameters if each.place == "query"}
        position = next((each for each in ("cursor", "after", "before") if each in names), "")
        follows = position and {"items", "next"} <= properties.keys()
        if position == "before" and follows:
            follows = "before" in str(properties["next"].get("description", ""))
        item = self.models.answer_type(properties["items"]["items"]) if follows else ""
        return operation._replace(
            kind="json", answer=self.models.answer_type(schema), item=item, position=position if item else ""
        )

    def _stream(self, base: Operation) -> Operation:
        content = next(iter(self.operation["responses"].values()))["content"]["text/event-stream"]
        if (mark := content.get("x-event")) is not None:
            self.models.event_frames(mark)
            return base._replace(
                kind="stream", answer="models.EventFrame", kinds="models.EVENT_KINDS", bare=True
            )
        found = self.operation.get("x-messages") or {
            name: {"$ref": f"#/components/schemas/{schema}"} for name, schema in STREAMED[self.path].items()
        }
        types = {name: self.models.answer_type(schema) for name, schema in found.items()}
        union = " | ".join([*dict.fromkeys(types.values()), "UnknownData"])
        kinds = ", ".join(f'"{name}": {kind}' for name, kind in types.items())
        return base._replace(kind="stream", answer=f"StreamMessage[{union}]", kinds=f"{{{kinds}}}")

    def _operation(self, *, body: list[Parameter]) -> Operation:
        given = [each for each in self.operation["parameters"] if each["in"] != "header"]
        headers = {each["name"] for each in self.operation["parameters"] if each["in"] == "header"}
        discriminated = any("discriminator" in each for each in self.answers)
        hidden = frozenset() if discriminated else WITHOUT
        parameters = [self._parameter(each) for each in given if each["name"] not in hidden]
        clash = {each.name for each in parameters} & {each.name for each in body}
        if clash:
            body = self._struct_body(self.operation["requestBody"]["content"][JSON]["schema"])
        everything = [*parameters, *body, *self._headers(headers)]
        return Operation(
            resource=self.resource,
            name=self.name,
            method=self.method,
            path=self.path,
            summary=self.operation["summary"],
            description=self.operation.get("description", ""),
            permission=self.operation.get("x-permission", ""),
            parameters=tuple(everything),
            kind="",
            answer="",
            keyed="Idempotency-Key" in headers,
            waits=self._waits(everything),
        )

    def _waits(self, parameters: list[Parameter]) -> str:
        names = {each.name for each in parameters}
        if {"wait", "timeout"} <= names:
            usual = next(each for each in self.operation["parameters"] if each["name"] == "timeout")
            return f"waiting(wait, timeout, {usual['schema'].get('default', 60)})"
        if "timeout_seconds" in names:
            return "waiting(True, timeout_seconds, 30)"
        changes_modules = self.resource == "modules" and self.method != "GET"
        uploads = any(each.place in ("content", "part") for each in parameters)
        return "UPLOAD_SECONDS" if uploads or changes_modules or self.path.endswith(SLOW) else ""

    def _parameter(self, given: dict[str, Any]) -> Parameter:
        name, place = given["name"], given["in"]
        kind = self.models.request_type(given["schema"])
        if name == "number":
            kind = "int"
        if name in COMMAS and kind == "str":
            kind = "str | Sequence[str]"
        default = None if given.get("required") else "None"
        if default and not kind.endswith("None"):
            kind = f"{kind} | None"
        meaning = given.get("description", "") + default_text(given["schema"])
        return Parameter(python_name(name), name, kind, default, meaning, place)

    def _body(self) -> list[Parameter]:
        described = self.operation.get("requestBody")
        if described is None:
            return []
        content, required = described["content"], described.get("required", False)
        if "multipart/form-data" in content:
            return self._form(content["multipart/form-data"]["schema"])
        if JSON in content:
            return self._json_body(content[JSON]["schema"], required=required)
        kind, default = ("Source", None) if required else ("Source | None", "None")
        media = "application/octet-stream" if "application/octet-stream" in content else next(iter(content))
        found = [
            Parameter("content", media, kind, default, "Bytes, a path, an open file, or pieces.", "content")
        ]
        return [*found, *self._relayed()] if self._relays else found

    @property
    def _relays(self) -> bool:
        return self.path.endswith("/modules/{id}/{path}")

    def _relayed(self) -> list[Parameter]:
        meaning = "Content type of the body."
        kind = Parameter("content_type", "", "str", '"application/octet-stream"', meaning, "media")
        return [kind] if self.method != "GET" else []

    def _form(self, schema: dict[str, Any]) -> list[Parameter]:
        required = set(schema.get("required", ()))
        return [
            Parameter(
                name,
                name,
                "Source" if name in required else "Source | None",
                None if name in required else "None",
                f"The part `{name}` of the form: bytes, a path, an open file, or pieces.",
                "part",
            )
            for name in schema["properties"]
        ]

    def _json_body(self, schema: dict[str, Any], *, required: bool) -> list[Parameter]:
        properties = self.models.properties(schema)
        if not properties or len(properties) > MOST_ARGUMENTS:
            return self._struct_body(schema)
        needed = self.models.required(schema)
        found = []
        for name, each in properties.items():
            kind = self.models.request_type(each)
            optional = name not in needed
            meaning = each.get("description", "") + default_text(each)
            text = f"{kind} | UnsetType" if optional else kind
            found.append(
                Parameter(python_name(name), name, text, "UNSET" if optional else None, meaning, "field")
            )
        del required
        return found

    def _struct_body(self, schema: dict[str, Any]) -> list[Parameter]:
        kind = self.models.request_type(schema)
        if not kind.startswith("Mapping"):
            kind = f"{kind} | Mapping[str, Any]"
        return [Parameter("body", "", kind, None, "What is sent; left out of it is what is UNSET.", "body")]

    def _headers(self, names: set[str]) -> list[Parameter]:
        digest = self.path.endswith("/files/content")
        kind = "str | None" if digest else "int | str | None"
        match = (
            "Only if the file still has this digest; `*`: if there is one."
            if digest
            else ("Only if the revision is still this one; otherwise `PreconditionFailed`.")
        )
        known = {
            "If-Match": Parameter("if_match", "If-Match", kind, "None", match, "tag"),
            "If-None-Match": Parameter(
                "if_none_match", "If-None-Match", "str | None", "None", "`*`: only if there is none.", "tag"
            ),
            "Last-Event-ID": Parameter(
                "last_event_id",
                "Last-Event-ID",
                "str | None",
                "None",
                "`cursor` of a stream that was left.",
                "last",
            ),
            "Idempotency-Key": Parameter(
                "idempotency_key",
                "",
                "str | None",
                "None",
                "The same key takes effect once; made unless given.",
                "key",
            ),
        }
        found = [parameter for name, parameter in known.items() if name in names]
        if self._relays:
            about = "Parameters of the module's route."
            query = Parameter("query", "", "Mapping[str, Any] | None", "None", about, "queries")
            return [query, *found]
        return found


def default_text(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict | list):
        return ""
    return f" Default: `{str(default).lower() if isinstance(default, bool) else default}`."


# models


class Models:
    """The schemas that operations use, as structures. `tag` is the resource that asks."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas
        self.tag = ""
        self.answering: dict[str, set[str]] = {}
        self.requested: dict[str, set[str]] = {}
        self.names = self._names()
        self.frames: dict[str, str] = {}
        self.tags: dict[str, tuple[str, str]] = {}
        self._find_tags(schemas)

    def _names(self) -> dict[str, str]:
        """Without `Shape`, where no other schema has that name; pages by their items."""
        names = {}
        for name in self.schemas:
            made = name
            if (page := re.fullmatch(r"(\w*Page)_(\w+?)_", name)) is not None:
                made = page[2].removesuffix("Shape") + "Page"
            elif name.endswith("Shape") and name.removesuffix("Shape") not in {*self.schemas, *TAKEN}:
                made = name.removesuffix("Shape")
            names[name] = made
        twice = {made for made in names.values() if list(names.values()).count(made) > 1}
        if twice:
            raise SystemExit(f"several schemas would be called {sorted(twice)}")
        return names

    def _find_tags(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self._find_tags(each)
        elif isinstance(node, dict):
            if "discriminator" in node and not node.get("x-event"):
                told = node["discriminator"]
                for tag, ref in told["mapping"].items():
                    self.tags[ref.rpartition("/")[2]] = (told["propertyName"], tag)
            for each in node.values():
                self._find_tags(each)

    def wire_name(self, schema: dict[str, Any]) -> str:
        return str(schema.get("$ref", "")).rpartition("/")[2]

    def properties(self, schema: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.schemas.get(self.wire_name(schema), {}).get("properties", {})
        return found

    def required(self, schema: dict[str, Any]) -> set[str]:
        return set(self.schemas[self.wire_name(schema)].get("required", ()))

    def answer_type(self, schema: dict[str, Any]) -> str:
        for name in refs(schema):
            self._reach(name, self.answering)
        if "discriminator" in schema:
            self._find_tags(schema)
        return self.type_of(schema, request=False, prefix="models.")

    def request_type(self, schema: dict[str, Any]) -> str:
        for name in refs(schema):
            self._reach(name, self.requested)
        return self.type_of(schema, request=True, prefix="models.")

    def event_frames(self, mark: dict[str, Any]) -> None:
        every = self.schemas[self.wire_name(mark)]
        for kind, ref in every["discriminator"]["mapping"].items():
            self.frames[kind] = ref.rpartition("/")[2]
            self._reach(self.frames[kind], self.answering)

    def _reach(self, name: str, reached: dict[str, set[str]]) -> None:
        tags = reached.setdefault(name, set())
        if self.tag in tags:
            return
        tags.add(self.tag)
        for each in refs(self.schemas[name]):
            self._reach(each, reached)

    def is_enum(self, name: str) -> bool:
        return "enum" in self.schemas[name]

    def input_name(self, name: str) -> str:
        """The class of requests: another one when answers have this structure, too, and it has fields that may be left out."""
        return f"{self.names[name]}Input" if self._differs(name, set()) else self.names[name]

    def _differs(self, name: str, seen: set[str]) -> bool:
        if name not in self.answering or self.is_enum(name) or name in seen:
            return False
        schema = self.schemas[name]
        if set(schema.get("properties", {})) - set(schema.get("required", ())):
            return True
        return any(self._differs(each, seen | {name}) for each in refs(schema))

    def type_of(self, schema: dict[str, Any], *, request: bool, prefix: str = "") -> str:
        if "$ref" in schema:
            name = self.wire_name(schema)
            return f"{prefix}@{name}@" if request else prefix + self.names[name]
        if "enum" in schema:
            choices = ", ".join(f'"{each}"' for each in schema["enum"])
            return f"Literal[{choices}]" if request else "str"
        if "anyOf" in schema:
            return self._union(schema, request=request, prefix=prefix)
        match schema.get("type"):
            case "array":
                item = self.type_of(schema.get("items", {}), request=request, prefix=prefix)
                return f"Sequence[{item}]" if request else f"tuple[{item}, ...]"
            case "object":
                more = schema.get("additionalProperties")
                value = self.type_of(more, request=request, prefix=prefix) if isinstance(more, dict) else ANY
                return f"Mapping[str, {value}]" if request else f"dict[str, {value}]"
            case "string":
                return "str"
            case "integer":
                return "int"
            case "number":
                return "float"
            case "boolean":
                return "bool"
        return "str" if isinstance(schema.get("const"), str) else ANY

    def _union(self, schema: dict[str, Any], *, request: bool, prefix: str) -> str:
        kinds = [each for each in schema["anyOf"] if each != {"type": "null"}]
        structures = [each for each in kinds if "$ref" in each and not self.is_enum(self.wire_name(each))]
        if len(structures) > 1 and "discriminator" not in schema:
            texts = ["dict[str, Any]"]  # nothing tells them apart
        else:
            texts = list(dict.fromkeys(self.type_of(each, request=request, prefix=prefix) for each in kinds))
        if len(kinds) < len(schema["anyOf"]):
            texts.append("None")
        return ANY if ANY in texts else " | ".join(texts)

    # files

    def files(self) -> dict[str, str]:
        classes: dict[str, dict[str, str]] = {}
        for name in self.schemas:
            for made, text, tags in self._classes(name):
                module = next(iter(tags)) if len(tags) == 1 else "shared"
                classes.setdefault(module, {})[made] = text
        if self.frames:
            classes["events"]["EventFrame"] = self._frame_union()
        homes = {made: module for module, found in classes.items() for made in found}
        files = {
            f"models/{module}.py": self._module(module, found, homes) for module, found in classes.items()
        }
        lines = [f'"""Structures of answers and requests. {NOTICE}"""']
        for module in sorted(classes):
            names = sorted([*classes[module], *(["EVENT_KINDS"] if module == "events" else [])])
            lines.append(f"from corral.client.generated.models.{module} import ({', '.join(names)})")
        every = sorted([*homes, "EVENT_KINDS"])
        lines.append(f"__all__ = {every!r}")
        return {**files, "models/__init__.py": "\n".join(lines) + "\n"}

    def _classes(self, name: str) -> Iterator[tuple[str, str, set[str]]]:
        answers, requests = self.answering.get(name, set()), self.requested.get(name, set())
        if self.is_enum(name):
            if answers or requests:
                yield self.names[name], self._enum(name), answers | requests
            return
        differs = self._differs(name, set())
        if answers:
            tags = answers | (set() if differs else requests)
            yield self.names[name], self._struct(name, self.names[name], request=False), tags
        if requests and (differs or not answers):
            made = self.input_name(name)
            yield made, self._struct(name, made, request=True), requests

    def _enum(self, name: str) -> str:
        lines = [f"class {self.names[name]}(OpenEnum):", f'    """{self._doc(name)}"""', ""]
        for value in self.schemas[name]["enum"]:
            member = re.sub(r"\W", "_", value).upper() or "NONE"
            lines.append(f'    {member} = "{value}"')
        return "\n".join(lines)

    def _struct(self, name: str, made: str, *, request: bool) -> str:
        schema = self.schemas[name]
        told = self.tags.get(name)
        options = "frozen=True, kw_only=True"
        if told is not None:
            options += f', tag_field="{told[0]}", tag="{told[1]}"'
        lines = [f"class {made}(Struct, {options}):", f'    """{self._doc(name, request=request)}"""', ""]
        required = set(schema.get("required", ()))
        for wire, each in schema.get("properties", {}).items():
            if told is not None and wire == told[0]:
                continue
            kind = self.resolved(self.type_of(each, request=request))
            default = ""
            if wire not in required:
                kind, default = self._default(kind, each, request=request)
            field = python_name(wire)
            if field != wire:
                inside = f"default={default}, " if default else ""
                default = default if default.startswith("field(") else f'field({inside}name="{wire}")'
            lines.append(f"    {field}: {kind}" + (f" = {default}" if default else ""))
            meaning = each.get("description", "") + (default_text(each) if request else "")
            if meaning:
                lines.append(f'    """{escaped(meaning)}"""')
        return "\n".join(lines)

    def _default(self, kind: str, schema: dict[str, Any], *, request: bool) -> tuple[str, str]:
        default = schema.get("default", UNKNOWN)
        if request or default is UNKNOWN:
            return f"{kind} | UnsetType", "UNSET"
        if default is None or isinstance(default, bool | int | float):
            return kind, repr(default)
        if isinstance(default, str):
            if "$ref" in schema:
                return kind, f'{kind}("{default}")'
            return kind, f'"{escaped(default)}"'
        if default == []:
            return kind, "()"
        if default == {} and kind.startswith("dict"):
            return kind, "field(default_factory=dict)"
        return f"{kind} | UnsetType", "UNSET"

    def _doc(self, name: str, *, request: bool = False) -> str:
        schema = self.schemas[name]
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.names[name]).lower()
        text = schema.get("description") or (
            f"Body of a request: {words}." if request else f"{words.capitalize()}."
        )
        return escaped(re.sub(r"\s*\n\s*", "\n    ", text))

    def _frame_union(self) -> str:
        names = {kind: self.names[name] for kind, name in self.frames.items()}
        union = " | ".join([*names.values(), "UnknownData"])
        kinds = "\n".join(f'    "{kind}": {name},' for kind, name in names.items())
        return (
            f"EVENT_KINDS: Final[Mapping[str, type[Struct]]] = {{\n{kinds}\n}}\n"
            '"""The structure of an event by its type."""\n\n'
            f"EventFrame: TypeAlias = {union}\n"
            '"""An event of the stream; `UnknownData` for a type that this client does not know."""'
        )

    def _module(self, module: str, classes: dict[str, str], homes: dict[str, str]) -> str:
        ordered = sorted(
            classes.items(), key=lambda each: (each[0] == "EventFrame", "OpenEnum" not in each[1])
        )
        body = self.resolved("\n\n\n".join(text for _, text in ordered))
        words = words_of(body)
        others: dict[str, list[str]] = {}
        for name in sorted(words & homes.keys()):
            if homes[name] != module:
                others.setdefault(homes[name], []).append(name)
        lines = [f'"""Structures of `{module}`. {NOTICE}"""', "from __future__ import annotations"]
        lines += imports(body)
        if "OpenEnum" in words:
            lines.append("from corral.client.enums import OpenEnum")
        if "UnknownData" in words:
            lines.append("from corral.client.answers import UnknownData")
        lines += [
            f"from corral.client.generated.models.{home} import {', '.join(names)}"
            for home, names in others.items()
        ]
        return "\n".join(lines) + "\n\n\n" + body + "\n"

    def resolved(self, text: str) -> str:
        """With the names of the structures of requests, which are known when all operations were read."""
        return re.sub(r"@(\w+)@", lambda found: self.input_name(found[1]), text)


UNKNOWN: Final = object()


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from refs(each)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].rpartition("/")[2]
        for key, each in node.items():
            if key not in ("discriminator", "examples", "example", "links"):
                yield from refs(each)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def words_of(code: str) -> set[str]:
    """The words of a program, without those of its texts."""
    return set(re.findall(r"\w+", re.sub(r'"""(?:.|\n)*?"""', "", code)))


def imports(body: str) -> list[str]:
    words = words_of(body)
    lines = []
    for module, names in (
        ("collections.abc", ("AsyncIterator", "Iterator", "Mapping", "Sequence")),
        ("typing", ("Any", "Final", "Literal", "TypeAlias")),
        ("msgspec", ("UNSET", "Struct", "UnsetType", "field")),
    ):
        used = [
            name for name in names if (name in words if name != "field" else re.search(r"\bfield\(", body))
        ]
        if used:
            lines.append(f"from {module} import {', '.join(used)}")
    return lines


# clients


def client_files(operations: list[Operation], models: Models) -> dict[str, str]:
    by_resource: dict[str, list[Operation]] = {}
    for each in operations:
        by_resource.setdefault(each.resource, []).append(each)
    files = {}
    for asynchronous in (False, True):
        folder = "asynchronous" if asynchronous else "sync"
        for resource, found in by_resource.items():
            text = resource_file(resource, found, models, asynchronous=asynchronous)
            files[f"{folder}/{resource}.py"] = text
        files[f"{folder}/__init__.py"] = root_file(sorted(by_resource), asynchronous=asynchronous)
    return files


def class_name(resource: str, *, asynchronous: bool) -> str:
    name = "".join(word.capitalize() for word in resource.split("_"))
    return f"Async{name}" if asynchronous else name


def root_file(resources: list[str], *, asynchronous: bool) -> str:
    folder, kind = ("asynchronous", "Async") if asynchronous else ("sync", "Sync")
    lines = [f'"""Resources of the client. {NOTICE}"""', "from __future__ import annotations"]
    lines.append(f"from corral.client.{kind.lower()}_calls import {kind}Calls")
    for each in resources:
        name = class_name(each, asynchronous=asynchronous)
        lines.append(f"from corral.client.generated.{folder}.{each} import {name}")
    lines += ["", "", f"class {kind}Resources:", '    """The API, resource by resource."""', ""]
    lines += [f"    def __init__(self, calls: {kind}Calls) -> None:", "        self._calls = calls"]
    for each in resources:
        lines.append(f"        self.{each} = {class_name(each, asynchronous=asynchronous)}(calls)")
    return "\n".join(lines) + "\n"


def resource_file(resource: str, operations: list[Operation], models: Models, *, asynchronous: bool) -> str:
    kind = "Async" if asynchronous else "Sync"
    name = class_name(resource, asynchronous=asynchronous)
    where = {
        f"{each.path.removeprefix(BASE).split('/')[0]}" for each in operations if each.path.startswith(BASE)
    }
    under = ", ".join(f"`{BASE}{each}`" for each in sorted(where)) or "`/`"
    body = [f"class {name}:", f'    """Operations of {under}."""', ""]
    body += ["    def __init__(self, calls: " + f"{kind}Calls) -> None:", "        self._calls = calls", ""]
    for each in operations:
        body += [textwrap.indent(method_text(each, asynchronous=asynchronous), "    "), ""]
        if each.item:
            body += [textwrap.indent(walk_text(each, asynchronous=asynchronous), "    "), ""]
    text = models.resolved("\n".join(body))
    words = words_of(text)
    lines = [f'"""Methods of `{resource}`. {NOTICE}"""', "from __future__ import annotations", *imports(text)]
    for module, names in (
        ("addresses", ("segment", "segments")),
        ("answers", ("StreamMessage", "UnknownData")),
        ("bodies", ("AsyncSource", "Body", "Source", "form")),
        ("requests", ("UPLOAD_SECONDS", "Request", "entity_tag", "joined", "waiting")),
        ("streams", ("StreamOrder",)),
        (
            f"{kind.lower()}_calls",
            ("AsyncCalls", "AsyncDownload", "AsyncEventStream", "Download", "EventStream", "SyncCalls"),
        ),
    ):
        used = [each for each in names if each in words]
        if used:
            lines.append(f"from corral.client.{module} import {', '.join(used)}")
    if "models." in text:
        lines.append("from corral.client.generated import models")
    return "\n".join(lines) + "\n\n\n" + text + "\n"


def arguments(operation: Operation, *, asynchronous: bool) -> str:
    """Those of the path, the contents and the structure by position, the others by name, needed ones first."""
    by_position = [
        each
        for each in operation.parameters
        if each.place in ("path", "content", "body") and each.default is None
    ]
    rest = [each for each in operation.parameters if each not in by_position]
    rest.sort(key=lambda each: each.default is not None)
    texts = [argument(each, asynchronous=asynchronous) for each in by_position]
    if rest:
        texts += ["*", *(argument(each, asynchronous=asynchronous) for each in rest)]
    return ", ".join(["self", *texts])


def argument(parameter: Parameter, *, asynchronous: bool) -> str:
    kind = re.sub(r"\bSource\b", "AsyncSource", parameter.type) if asynchronous else parameter.type
    return f"{parameter.name}: {kind}" + ("" if parameter.default is None else f" = {parameter.default}")


def docstring(operation: Operation, first: str = "") -> str:
    lines = [first or f"{operation.summary.rstrip('.')}."]
    if operation.description:
        lines += ["", *operation.description.strip().splitlines()]
    told = [each for each in operation.parameters if each.meaning]
    if told:
        lines += ["", *(f"- `{each.name}`: {one_line(each.meaning)}" for each in told)]
    route = f"`{operation.method} {operation.path}`"
    needs = f", permission `{operation.permission}`" if operation.permission else ""
    lines += ["", f"{route}{needs}."]
    return '"""' + escaped("\n".join(lines)) + '\n"""'


def one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def path_text(operation: Operation) -> str:
    def write(found: re.Match[str]) -> str:
        name = found[1]
        rest = name == "path" and operation.path.endswith("{path}")
        function = "segments" if rest or (operation.resource, name) in SLASHED else "segment"
        value = f"str({python_name(name)})" if name == "number" else python_name(name)
        return f"{{{function}({value})}}"

    text = re.sub(r"\{(\w+)\}", write, operation.path)
    return f'f"{text}"' if text != operation.path else f'"{text}"'


def query_text(operation: Operation) -> str:
    pairs = []
    for each in operation.parameters:
        if each.place == "query":
            value = f"joined({each.name})" if each.wire in COMMAS else each.name
            pairs.append(f'"{each.wire}": {value}')
    pairs += [f'"{name}": {value}' for name, value in operation.fixed]
    return f"{{{', '.join(pairs)}}}" if pairs else ""


def request_text(operation: Operation, *, request: str) -> str:
    parts = [f'"{operation.method}"', path_text(operation)]
    if operation.kind == "json":
        parts.append(operation.answer)
    if operation.kind == "text":
        parts.append("text=True")
    query = (
        "query" if any(each.place == "queries" for each in operation.parameters) else query_text(operation)
    )
    parts += [f"query={query}"] if query else []
    parts += body_text(operation)
    tags = [f'"{each.wire}": entity_tag({each.name})' for each in operation.parameters if each.place == "tag"]
    parts += [f"headers={{{', '.join(tags)}}}"] if tags else []
    parts += ["keyed=True, key=idempotency_key"] if operation.keyed else []
    parts += ["harmless=True"] if operation.harmless else []
    parts += [f"waits={operation.waits}"] if operation.waits else []
    return f"Request[{request}]({', '.join(parts)})"


def body_text(operation: Operation) -> list[str]:
    fields = [f'"{each.wire}": {each.name}' for each in operation.parameters if each.place == "field"]
    if fields:
        return [f"json={{{', '.join(fields)}}}"]
    for each in operation.parameters:
        if each.place == "body":
            return ["json=body"]
        if each.place == "content":
            body = (
                "Body(content)" if each.default is None else "Body(content) if content is not None else None"
            )
            typed = any(other.place == "media" for other in operation.parameters)
            return [f"body={body}", "content_type=content_type" if typed else f'content_type="{each.wire}"']
        if each.place == "part":
            return ["body=body", "content_type=content_type"]
    return []


def method_text(operation: Operation, *, asynchronous: bool) -> str:
    prefix = "Async" if asynchronous else ""
    waits = asynchronous and operation.kind in ("json", "text", "none")
    returned = {"download": f"{prefix}Download", "stream": f"{prefix}EventStream[{operation.answer}]"}.get(
        operation.kind, operation.answer
    )
    before = []
    parts = [each.name for each in operation.parameters if each.place == "part"]
    if parts:
        before = [f"body, content_type = form({{{', '.join(f'{each!r}: {each}' for each in parts)}}})"]
    if operation.kind == "stream":
        query = query_text(operation) or "{}"
        bare = ", bare=True" if operation.bare else ""
        given = f"{path_text(operation)}, {operation.kinds}, query={query}, last_id=last_event_id{bare}"
        result = f"return self._calls.stream(StreamOrder[{operation.answer}]({given}))"
    elif operation.kind == "download":
        result = f"return self._calls.download({request_text(operation, request='None')})"
    else:
        call = f"self._calls.call({request_text(operation, request=operation.answer)})"
        call = f"await {call}" if waits else call
        result = call if operation.kind == "none" else f"return {call}"
    head = f"{'async ' if waits else ''}def {operation.name}({arguments(operation, asynchronous=asynchronous)}) -> {returned}:"
    inside = [docstring(operation), *before, result]
    return head + "\n" + textwrap.indent("\n".join(inside), "    ")


def walk_text(operation: Operation, *, asynchronous: bool) -> str:
    walked = operation._replace(
        name=walk_name(operation),
        parameters=tuple(
            each for each in operation.parameters if each.wire != operation.position or each.place != "query"
        ),
    )
    if operation.position == "after":  # it is also where to begin
        walked = walked._replace(parameters=operation.parameters)
    given = [
        each.name if each.place in ("path", "body") else f"{each.name}={each.name}"
        for each in walked.parameters
    ]
    position = operation.position
    given = [each for each in given if each != f"{position}={position}"]
    first = f"position or {position}" if position == "after" else "position"
    call = f"self.{operation.name}({', '.join([*given, f'{position}={first}'])})"
    kind = "AsyncIterator" if asynchronous else "Iterator"
    head = f"def {walked.name}({arguments(walked, asynchronous=asynchronous)}) -> {kind}[{operation.item}]:"
    summary = f"{operation.summary.rstrip('.')}: the items of all pages, each page read when it is needed."
    inside = [docstring(walked, summary), f"return self._calls.pages(lambda position: {call})"]
    return head + "\n" + textwrap.indent("\n".join(inside), "    ")


if __name__ == "__main__":
    raise SystemExit(main())
