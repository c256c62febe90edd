"""Answers to changes of files that a controller may ask for again: a change with an id is executed once.

The controller repeats an order when it does not know what became of it: it was restarted, or the connection broke. By then
the workload may have changed the files again, so a second execution could destroy what is newer. The answers are kept in
memory: a daemon that was restarted itself cannot tell, and says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from corral.daemon.orders.file_orders import error_of
from corral.daemon.runs.run_messages import cut
from corral.errors import Code, FileChanged, Rejected
from corral.wire.v1.instance_pb2 import ChangeInstanceFiles, InstanceFilesAnswer, SendInstanceFile

KEPT: Final = 1000
"""The latest; an answer has about 200 bytes."""


class AnsweredChanges:
    """The answers by `change_id`."""

    def __init__(self) -> None:
        self._answers: dict[str, InstanceFilesAnswer] = {}

    async def once(
        self,
        asked: ChangeInstanceFiles,
        change: Callable[[ChangeInstanceFiles], Awaitable[InstanceFilesAnswer]],
    ) -> InstanceFilesAnswer:
        """Change something, unless this was asked before. A refusal is an answer, too; a change that was broken off has
        none. MAY_HAVE_ARRIVED, and whatever `change` raises."""
        if asked.repeated:
            return self._former(asked)
        self._answers.pop(asked.change_id, None)  # of an attempt that was refused: this one may be broken off
        try:
            answer = await change(asked)
        except Exception as error:
            self._keep(asked.change_id, refusal_of(asked, error))
            raise
        self._keep(asked.change_id, answer)
        return answer

    def _keep(self, change_id: str, answer: InstanceFilesAnswer) -> None:
        if change_id:
            self._answers[change_id] = answer
        while len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]

    def _former(self, repeated: ChangeInstanceFiles) -> InstanceFilesAnswer:
        known = self._answers.get(repeated.change_id)
        if known is None:
            raise Rejected(
                Code.MAY_HAVE_ARRIVED,
                f"'{repeated.path}' may have been changed already: an earlier attempt was interrupted",
                hint="nothing was done now; look at the file, and ask with a new key if it was not changed",
            )
        answer = InstanceFilesAnswer()
        answer.CopyFrom(known)
        return answer


def refusal_of(asked: ChangeInstanceFiles | SendInstanceFile, error: Exception) -> InstanceFilesAnswer:
    """An error as the answer to its order."""
    ours = error_of(asked.instance_id, asked.path, error)
    seen = ours.digest if isinstance(ours, FileChanged) else ""
    return InstanceFilesAnswer(error=cut(f"{ours.code.name}: {ours}"), sha256=seen)
