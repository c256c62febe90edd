"""A line that is typed on a terminal, edited by prompt_toolkit. Imported where somebody types, and by no other command: it
takes longer than most of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from prompt_toolkit import ANSI, PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle


class LinePrompt:
    """Reads lines. Ctrl-C is KeyboardInterrupt, Ctrl-D EOFError, SIGTERM SystemExit: the terminal is as before then."""

    def __init__(
        self,
        message: AnyFormattedText,
        *,
        history: History,
        completer: Completer | None = None,
        keys: KeyBindings | None = None,
        erased: bool = False,
    ) -> None:
        output = Vt100_Output.from_pty(
            sys.stdout, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env()
        )
        output.enable_cpr = False  # a late answer would be input of the command that runs next
        self.session: PromptSession[str] = PromptSession(
            message,
            history=history,
            completer=completer,
            complete_style=CompleteStyle.READLINE_LIKE,
            enable_suspend=True,
            key_bindings=keys,
            erase_when_done=erased,
            output=output,
        )

    def read(self, begin: Callable[[], None] | None = None) -> str:
        """The next line. `begin` is called in the event loop, before the first key."""

        def prepare() -> None:
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGTERM, self.end, SystemExit(128 + signal.SIGTERM)
            )
            if begin is not None:
                begin()

        return self.session.prompt(pre_run=prepare)

    def end(self, reason: BaseException) -> None:
        """Have `read` raise this."""
        if self.session.app.is_running and not self.session.app.is_done:
            self.session.app.exit(exception=reason)


class SendingPrompt(LinePrompt):
    """A prompt that stays, with output above it. Enter passes the line on; Ctrl-C, Ctrl-D and Ctrl-] end it."""

    def __init__(self, prompt: str, *, history: Sequence[str], on_line: Callable[[str], None]) -> None:
        keys = KeyBindings()
        keys.add("c-]", eager=True)(_leave)
        super().__init__(self._message, history=InMemoryHistory(history), keys=keys, erased=True)
        self.before = ""
        """Stands before the prompt: a line of output that is not finished."""
        self._prompt = prompt
        self._on_line = on_line
        self.session.default_buffer.accept_handler = self._accept

    def _message(self) -> AnyFormattedText:
        room = self.session.output.get_size().columns // 2
        return ANSI(self.before[-room:] + self._prompt)

    def _accept(self, typed: Any) -> bool:
        """Pasted text has several lines: each is one of its own."""
        for line in typed.text.splitlines():
            whole = "".join(filter(str.isprintable, line))
            if whole:
                self._on_line(whole)
        return False

    def print_above(self, text: str) -> None:
        """Whole lines, as they are. The terminal stays in the mode for typing, so that keys are not echoed among them; the
        prompt is drawn again when nothing more comes at once."""
        app = self.session.app
        app.renderer.erase()
        app.output.write_raw(text)
        app.output.flush()
        app.invalidate()


def _leave(event: KeyPressEvent) -> None:
    event.app.exit(exception=EOFError)
