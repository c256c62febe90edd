"""Archives of an instance's files: requested over its node's session, received over the data channel."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from corral.controller.distribution.ports import FileUploads, offline
from corral.controller.sessions.node_links import NodeLink, NodeLinks, answer_of, dismiss
from corral.domain.file_paths import check_glob
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.spec import invalid
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.controller_config import TemplatesSection
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.instance_pb2 import SaveFiles, SaveFilesFailed
from corral.wire.v1.link_pb2 import ControllerMessage

SAVE_SECONDS: Final = 600.0
MAX_PATHS: Final = 1000
_AT_A_TIME: Final = 2
"""The most of one node; fewer than the transfers it may have in progress."""
_PER_FILE: Final = 4096
"""The overhead of an archive per file, long names included."""
_BLOCK: Final = 256 * 1024
_TEXT: Final = 500
_PASSING: Final = frozenset(
    {Code.TIMEOUT, Code.UNREACHABLE, Code.SHUTTING_DOWN, Code.RATE_LIMITED, Code.TRANSFER_INTERRUPTED}
)


class FileSaving:
    """Requests files from nodes. Each request has a deadline, and ends when its node disconnects."""

    def __init__(
        self,
        *,
        links: NodeLinks,
        uploads: FileUploads,
        limits: TemplatesSection,
        entropy: Entropy,
        seconds: float = SAVE_SECONDS,
    ) -> None:
        self._links = links
        self._uploads = uploads
        self._limits = limits
        self._entropy = entropy
        self._seconds = seconds
        self._asked: dict[str, tuple[NodeId, asyncio.Future[pathlib.Path]]] = {}

    @contextlib.asynccontextmanager
    async def save(
        self, record: InstanceRecord, paths: Sequence[str], *, secret_names: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The files of its working directory that match the globs, as a tar.gz to be read once; it is removed
        afterwards. NODE_OFFLINE, TIMEOUT, RATE_LIMITED, NOT_SUPPORTED, or the node's own code."""
        _check(paths)
        archive = await self._fetch(record, paths, secret_names=secret_names)
        try:
            async with contextlib.aclosing(_blocks(archive)) as blocks:
                yield blocks
        finally:
            archive.unlink(missing_ok=True)

    async def _fetch(
        self, record: InstanceRecord, paths: Sequence[str], *, secret_names: bool
    ) -> pathlib.Path:
        link = self._link(record.node)
        request = SaveFiles(
            request_id=new_id("save", self._entropy),
            instance_id=record.id,
            incarnation=record.incarnation,
            paths=paths,
            max_bytes=self._limits.max_bytes,
            max_files=self._limits.max_files,
            secret_names=secret_names,
        )
        limit = self._limits.max_bytes + self._limits.max_files * _PER_FILE
        answer = self._uploads.expect_file(request.request_id, node_id=record.node, max_bytes=limit)
        self._asked[request.request_id] = record.node, answer
        try:
            if not link.send(ControllerMessage(save_files=request)):
                raise offline(record.node)
            async with asyncio.timeout(self._seconds):
                return await answer_of(answer, over=link.over, gone=offline(record.node))
        except BaseException as error:
            _discard(answer)
            if isinstance(error, TimeoutError):
                raise Retryable(
                    Code.TIMEOUT, f"node '{record.node}' did not send the files within {self._seconds:g} s"
                ) from None
            raise
        finally:
            del self._asked[request.request_id]

    def _link(self, node_id: NodeId) -> NodeLink:
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        if not link.facts.supports.templates:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' cannot be asked for files",
                hint="update it",
            )
        if sum(1 for node, _ in self._asked.values() if node == node_id) >= _AT_A_TIME:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{_AT_A_TIME} instances of node '{node_id}' are being saved already",
                retry_after=5.0,
            )
        return link

    def failed(self, node_id: NodeId, failure: SaveFilesFailed) -> None:
        """The node reports a failure; only that of the requested node counts."""
        expecting, answer = self._asked.get(failure.request_id, (None, None))
        if answer is not None and expecting == node_id and not answer.done():
            answer.set_exception(_refusal(node_id, failure))

    def close(self) -> None:
        """End all requests with the term: no answer will arrive."""
        dismiss(answer for _, answer in self._asked.values())


def _discard(answer: asyncio.Future[pathlib.Path]) -> None:
    """Remove a file without a reader: it may have arrived at the moment in which its reader gave up."""
    if not answer.cancel() and not answer.cancelled() and answer.exception() is None:
        answer.result().unlink(missing_ok=True)


def _check(paths: Sequence[str]) -> None:
    if not 0 < len(paths) <= MAX_PATHS:
        raise invalid("paths", f"{len(paths)} paths were given", f"name 1 to {MAX_PATHS}")
    for position, path in enumerate(paths):
        check_glob(path, field=f"paths/{position}")


def _refusal(node_id: NodeId, failure: SaveFilesFailed) -> CorralError:
    code = Code.__members__.get(failure.error_code, Code.UNREACHABLE)
    kind = Retryable if code in _PASSING else Rejected
    return kind(code, f"node '{node_id}': {failure.error_message[:_TEXT] or failure.error_code[:80]}")


async def _blocks(path: pathlib.Path) -> AsyncGenerator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, _BLOCK):
            yield block
