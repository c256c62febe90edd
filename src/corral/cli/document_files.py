"""Documents that people write into files: JSON, or YAML, from a file or from stdin."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from corral.cli.failure import WrongUsage
from corral.cli.terminal.standard_input import refuse_lines_of_console
from corral.system.document_limits import MOST_BYTES, MalformedDocument, ValueTally
from corral.system.document_sets import bodies_in, shown_file


def read_documents(path: str) -> list[dict[str, Any]]:
    """Every document of a file ('-': stdin); WrongUsage has what is wrong with it."""
    shown = shown_file(path)
    try:
        found = [each.body for each in bodies_in(path, _content(path).decode("utf-8"), ValueTally())]
    except OSError as error:
        raise WrongUsage(f"cannot read {shown}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise WrongUsage(f"{shown} is not text in UTF-8") from None
    except MalformedDocument as error:
        raise WrongUsage(f"{shown_file(path, error.line)}: {error}", hint="correct the file") from None
    documents = [document for each in found for document in (each if isinstance(each, list) else [each])]
    if not all(isinstance(document, Mapping) for document in documents):
        raise WrongUsage(f"{shown} holds something that is no document", hint="write 'name: lobby' and so on")
    if not documents:
        raise WrongUsage(f"{shown} is empty")
    return documents


def _content(path: str) -> bytes:
    if path == "-":
        refuse_lines_of_console()
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with pathlib.Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise MalformedDocument(f"it has more than {MOST_BYTES >> 20} MiB; split it into several files")
    return content
