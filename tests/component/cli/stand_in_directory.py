"""The files of an instance behind the API's routes, as a stand-in controller answers them."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Callable
from typing import Any

from stand_in_controller import Answer, File, Request, StandIn, refused

AT = "/api/v1/instances/lobby-1/files"
LOG = {
    "path": "logs/latest.log",
    "kind": "file",
    "size": 42,
    "modified_at": "2026-01-01T00:00:00Z",
    "mode": "0644",
    "digest": None,
    "binary": None,
    "origin": "template",
    "template": "base",
    "template_version": 14,
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Directory:
    """The files of an instance, behind the API's routes; `meanwhile` is called before a write, once unless it sets itself
    again."""

    def __init__(self, server: StandIn, **files: bytes) -> None:
        self.files = dict(files)
        self.modes: dict[str, str] = {}
        self.knows_modes = True
        self.listed_digests = self.stat_digests = 1 << 30
        """Files up to this size have digests there."""
        self.most = 1 << 30
        """Larger ones are not downloaded."""
        self.meanwhile: Callable[[], object] = lambda: None
        server.answers["GET", AT] = self._list
        server.answers["GET", f"{AT}/content"] = self._read
        server.answers["GET", f"{AT}/stat"] = self._stat
        server.answers["PUT", f"{AT}/content"] = self._write

    def _entry(self, path: str, digested: int) -> dict[str, Any]:
        content = self.files[path]
        digest = sha256(content) if len(content) <= digested else None
        binary = b"\0" in content if digest else None
        mode = "0" + self.modes.get(path, "644")
        return {
            **LOG,
            "path": path,
            "size": len(content),
            "digest": digest,
            "binary": binary,
            "mode": mode,
        }

    def _list(self, request: Request) -> Answer:
        after = request.query.get("cursor", "")
        names = sorted(name for name in self.files if name > after)
        page = {"items": [self._entry(name, self.listed_digests) for name in names[:2]], "truncated": False}
        return 200, {**page, "next": names[1] if len(names) > 2 else None}

    def _read(self, request: Request) -> Answer:
        found = self.files.get(request.query["path"])
        if found is not None and len(found) > self.most:
            return refused(413, "BODY_TOO_LARGE", "too large to be compared")
        return refused(404, "NOT_FOUND", "no such file") if found is None else File(found, tag=sha256(found))

    def _stat(self, request: Request) -> Answer:
        if request.query["path"] not in self.files:
            return refused(404, "NOT_FOUND", "no such file")
        return 200, self._entry(request.query["path"], self.stat_digests)

    def _write(self, request: Request) -> Answer:
        path, meanwhile = request.query["path"], self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        there = self.files.get(path)
        match = request.headers.get("If-Match", "").strip('"')
        if (match and (there is None or sha256(there) != match)) or (
            request.headers.get("If-None-Match") == "*" and there is not None
        ):
            found = {"digest": sha256(there)} if there is not None else {}
            return refused(412, "FILE_CHANGED", f"'{path}' has another content", **found)
        if "mode" in request.query:
            if not self.knows_modes:
                return refused(422, "NOT_SUPPORTED", "the daemon cannot be told the mode")
            self.modes[path] = request.query["mode"]
        body = request.body if isinstance(request.body, bytes) else b""
        self.files[path] = body
        return 200, {
            "id": "lobby-1",
            "path": path,
            "digest": sha256(body),
            "size": len(body),
            "changed": True,
        }


def editor(script: str) -> str:
    """Runs Python with the file as `path`."""
    return f'{sys.executable} -c "import pathlib, sys; path = pathlib.Path(sys.argv[1]); {script}"'


def archive(*names: str) -> File:
    """Executable files with one letter."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = 1, 0o755
            tar.addfile(entry, io.BytesIO(b"x"))
    return File(packed.getvalue(), kind="application/gzip")
