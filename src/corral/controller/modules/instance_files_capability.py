"""The built-in capability `corral.instance.files`, as modules on a controller call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from corral.controller.distribution.instance_files import FileListing, FilePart, WalkRequest
from corral.domain.file_paths import DEFAULT_BYTES, DEFAULT_ENTRIES
from corral.errors import Code, Rejected
from corral.modules.capabilities.capability_calls import BuiltInMethod, Consumer
from corral.sdk.instance_files import INSTANCE_FILES, FileEntry

VERSION: Final = "1.0.0"


class InstanceFileReader(Protocol):
    """Port to the files on nodes. Every call has a deadline of its own and is bounded."""

    async def walk_files(self, id: str, request: WalkRequest, *, caller: str) -> FileListing: ...

    async def read_file(self, id: str, path: str, *, offset: int, length: int, caller: str) -> FilePart: ...


class _WalkArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    instance_id: str
    path: str = ""
    limit: int = DEFAULT_ENTRIES


class _ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    instance_id: str
    path: str
    offset: int = 0
    length: int = DEFAULT_BYTES


T = TypeVar("T", _WalkArguments, _ReadArguments)


class InstanceFilesCapability:
    """The contract `InstanceFiles`, method by method. NOT_FOUND, PATH_REFUSED, INVALID_FIELD, NODE_OFFLINE,
    TIMEOUT, RATE_LIMITED reach the module unchanged; CAPABILITY_TYPE for invalid arguments."""

    def __init__(self, files: InstanceFileReader) -> None:
        self._files = files

    @property
    def methods(self) -> Mapping[str, BuiltInMethod]:
        return {"walk": self._walk, "read": self._read}

    async def _walk(self, consumer: Consumer | None, raw: msgspec.Raw) -> list[FileEntry]:
        asked = _arguments(raw, _WalkArguments, "walk")
        request = WalkRequest(path=asked.path, limit=asked.limit)
        listing = await self._files.walk_files(asked.instance_id, request, caller=_caller(consumer))
        return [
            FileEntry(path=each.path, kind=each.kind, size=each.size, modified_at=each.modified_at)
            for each in listing.entries
        ]

    async def _read(self, consumer: Consumer | None, raw: msgspec.Raw) -> bytes:
        asked = _arguments(raw, _ReadArguments, "read")
        part = await self._files.read_file(
            asked.instance_id,
            asked.path,
            offset=asked.offset,
            length=asked.length,
            caller=_caller(consumer),
        )
        return part.content


def _caller(consumer: Consumer | None) -> str:
    """Whose share of a node's turns a call takes."""
    return f"module/{consumer.manifest.id if consumer is not None else ''}"


def _arguments(raw: msgspec.Raw, kind: type[T], method: str) -> T:
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(
            Code.CAPABILITY_TYPE,
            f"{INSTANCE_FILES}.{method}: {error}",
            hint="see InstanceFiles in corral.sdk",
        ) from None
