"""`corral instance edit`: one of an instance's files in an editor, and what becomes of it when both changed it."""

from __future__ import annotations

import pathlib
import shlex
import sys
import tempfile
from typing import Any, Final, NoReturn

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, note
from corral.cli.instance.file_changes import CHANGED, condition, files_path, send
from corral.cli.terminal.output import show_done

NOT_FOUND: Final = "NOT_FOUND"
_OVERWRITES: Final = 5
"""So often somebody's text is sent while the file changes."""
_CHOICES: Final = ("overwrite", "merge", "abort")
_UNMERGED_CHOICES: Final = ("overwrite", "abort")
"""Of what is no text."""
_MERGED_CHOICES: Final = ("write", "edit", "abort")
_MARKS: Final = (b"<<<<<<< yours", b"||||||| before", b">>>>>>> theirs")


@click.command("edit")
@click.argument("id")
@click.argument("path")
@api_command
def edit_file(session: ApiSession, id: str, path: str) -> None:
    """Edit one of an instance's files with VISUAL or EDITOR.

    When the file was changed meanwhile, by the server or by somebody, you choose: overwrite, merge or abort. What you wrote
    is never lost.
    """
    with tempfile.TemporaryDirectory(prefix="corral-edit-") as directory:
        edit = _Edit(session, id, path, pathlib.Path(directory))
        made = edit.run()
    sentence = f"'{path}' is written" if made["changed"] else "nothing was changed"
    show_done(session.output, made, sentence, name="digest")


class _Edit:
    """One file in an editor. `_base` is what the file had when it was read last, `_mine` what is edited."""

    def __init__(self, session: ApiSession, id: str, path: str, directory: pathlib.Path) -> None:
        self._session = session
        self._id = id
        self._path = path
        name = pathlib.PurePosixPath(path).name
        self._mine = directory / name
        self._base = directory / f"{name}.base"
        self._theirs = directory / f"{name}.theirs"

    def run(self) -> Any:
        from corral.cli.terminal.editor import kept_text, run_editor

        digest = self._read_first()
        before = self._mine.read_bytes()
        self._base.write_bytes(before)
        with kept_text(self._mine, before=before):
            run_editor(self._mine)
            if self._mine.read_bytes() == before:
                return {"id": self._id, "path": self._path, "digest": digest, "changed": False}
            return self._send(condition(digest))

    def _read_first(self) -> str:
        """Fetch what is edited; its digest. Refuses what is no text in any encoding: an editor would damage it."""
        try:
            digest = self._read(self._mine)
        except CommandRefused as refusal:
            if refusal.code == NOT_FOUND and not refusal.hint:  # one of the instance has a hint
                refusal.hint = f"a new file is written with: {self._put('FILE')}"
            raise
        if b"\0" in self._mine.read_bytes():
            pull = shlex.join(("corral", "instance", "pull", self._id, self._path))
            raise CommandRefused(
                f"'{self._path}' is no text: it holds NUL, and an editor would damage it",
                hint=f"fetch it with: {pull}; change it here; then write it with: {self._put('FILE')}",
            )
        return digest

    def _send(self, headers: dict[str, str]) -> Any:
        """As often as somebody chooses to go on after a conflict."""
        word = "changed"
        while True:
            try:
                return self._sent(headers)
            except CommandRefused as refusal:
                if refusal.code != CHANGED:
                    raise
                conflict = CommandRefused(
                    f"'{self._path}' was {word} while you edited it, by the server or by somebody",
                    code=CHANGED,
                    request=refusal.request,
                )
                choice = self._choice(conflict)
                if choice == "abort":
                    self._abort(conflict, refusal.digest)
                if choice == "overwrite":
                    return self._overwrite()
                headers = self._merged(conflict)
                word = "changed again"

    def _choice(self, conflict: CommandRefused) -> str:
        if not sys.stdin.isatty():
            return "abort"
        note(conflict.message)
        if b"\0" in self._mine.read_bytes():
            return _prompt("overwrite it, or abort", _UNMERGED_CHOICES, default="abort")
        return _prompt("overwrite it, merge both, or abort", _CHOICES, default="abort")

    def _sent(self, headers: dict[str, str]) -> Any:
        with self._mine.open("rb") as file:
            return send(self._session, self._id, self._path, file, headers)

    def _overwrite(self) -> Any:
        """Write over whatever is there at that moment; again, a few times, when it changes in between."""
        from corral.cli.terminal.editor import keep_text

        for _ in range(_OVERWRITES):
            try:
                return self._sent(condition(self._digest_there() or "none"))
            except CommandRefused as refusal:
                if refusal.code != CHANGED:
                    raise
        put = self._put(str(keep_text(self._mine)))
        raise CommandRefused(
            f"'{self._path}' was not overwritten: it was changed again, {_OVERWRITES} times",
            hint=f"stop what writes it, or write yours over whatever is there with: {put}",
            code=CHANGED,
        )

    def _digest_there(self) -> str:
        """That of the file at this moment; empty: there is none."""
        try:
            entry = self._session.client.get(files_path(self._id, "stat"), {"path": self._path})
            return entry.get("digest") or self._read(self._theirs)
        except CommandRefused as refusal:
            if refusal.code != NOT_FOUND:
                raise
            return ""

    def _merged(self, refusal: CommandRefused) -> dict[str, str]:
        """What the next attempt requires, once both texts are one; raises the refusal when somebody gives up."""
        digest = self._read(self._theirs)
        merge(self._mine, self._base, self._theirs)
        self._base.write_bytes(self._theirs.read_bytes())
        self._edit_merged(refusal, digest)
        return condition(digest)

    def _edit_merged(self, refusal: CommandRefused, digest: str) -> None:
        """Until it is as somebody wants it: what still has marks, or was left as it was merged, is written only if that is said."""
        from corral.cli.terminal.editor import run_editor

        choice = "edit"
        while choice == "edit":
            before = self._mine.read_bytes()
            run_editor(self._mine)
            if has_marks(text := self._mine.read_bytes()):
                choice = _merged_choice("the text still has marks of the merge")
            elif text == before:
                choice = _merged_choice("the merged text was not changed")
            else:
                return
        if choice == "abort":
            self._abort(refusal, digest)

    def _abort(self, refusal: CommandRefused, digest: str) -> NoReturn:
        """Keep the text and raise the refusal. `digest`: of the file that is there; empty: there is none."""
        from corral.cli.terminal.editor import keep_text

        kept = str(keep_text(self._mine))
        there = ("--if-match", digest) if digest else ()
        look = shlex.join(("corral", "instance", "cat", self._id, self._path))
        refusal.hint = (
            f"nothing was written; look at it with: {look}; then write yours with: {self._put(kept, *there)}"
        )
        raise refusal

    def _put(self, file: str, *options: str) -> str:
        """The command that writes a file of this machine there."""
        return shlex.join(("corral", "instance", "put", self._id, self._path, file, *options))

    def _read(self, target: pathlib.Path) -> str:
        """Fetch the file; its digest."""
        from corral.cli.api.transfers import save

        response = self._session.client.download(files_path(self._id, "content"), {"path": self._path})
        digest = response.head.get("ETag").strip('"')
        save(response, str(target), what=self._path)
        return digest


def _merged_choice(why: str) -> str:
    if not sys.stdin.isatty():
        return "abort"
    note(why)
    return _prompt("write it, edit it again, or abort", _MERGED_CHOICES, default="edit")


def _prompt(question: str, choices: tuple[str, ...], *, default: str) -> str:
    chosen: str = click.prompt(question, type=_Choice(choices), default=default, err=True)
    return chosen


class _Choice(click.Choice[str]):
    """One of the words, or how only it begins."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        begun = [word for word in self.choices if word.startswith(value.strip().lower())]
        return super().convert(begun[0] if len(begun) == 1 else value, param, ctx)


def has_marks(text: bytes) -> bool:
    """Whether a line of it begins as those do that `merge` puts around what both changed."""
    return any(line.startswith(_MARKS) for line in text.splitlines())


def merge(mine: pathlib.Path, base: pathlib.Path, theirs: pathlib.Path) -> None:
    """Put their changes into `mine`; where both changed the same lines it has both, between marks. Without git or diff3, or
    where neither can, all of it is between marks."""
    import subprocess

    marks = ("-L", "yours", "-L", "before", "-L", "theirs")
    # The exit code of the first counts conflicts; that of the second is 1 with some, and 2 for a failure.
    for command, most in ((("git", "merge-file", "-p"), 127), (("diff3", "-m"), 1)):
        try:
            merged = subprocess.run([*command, *marks, mine, base, theirs], check=False, capture_output=True)
        except OSError:
            continue
        if 0 <= merged.returncode <= most:
            _replace(mine, merged.stdout)
            return
    both = (b"<<<<<<< yours\n", mine.read_bytes(), b"\n=======\n", theirs.read_bytes(), b"\n>>>>>>> theirs\n")
    _replace(mine, b"".join(both))


def _replace(file: pathlib.Path, content: bytes) -> None:
    """The former text is there until the new one is whole."""
    new = file.with_name(f"{file.name}.merged")
    new.write_bytes(content)
    new.replace(file)
