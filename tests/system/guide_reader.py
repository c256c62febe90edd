"""Somebody who reads a guide from its first line to its last and types what it says."""

from __future__ import annotations

import pathlib
import re
from typing import Final

import msgspec
import yaml
from guide_machine import PROJECT, Shell
from guide_pages import Block, blocks_of, commands_of

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group

READY: Final = "ready: "
_PREFIX: Final = r"^(?:[A-Z_]+=\S*\s+)*"
SERVICE: Final = re.compile(_PREFIX + r"(?:make up|corral up|corral (?:controller|daemon)(?= +-|$))")
"""Goes on until it is interrupted; the reader needs another terminal."""
FOLLOWER: Final = re.compile(r" logs .*-f( |$)| --watch| event follow|/stream$|^corral module dev ")
"""Goes on, too, and the reader interrupts it after a look."""
_PRINTS: Final = re.compile(r" --print-config| --help")
LOOK: Final = """
set -m; {{ {command}
}} > /tmp/look 2>&1 & set +m
for _ in $(seq 15); do [ -s /tmp/look ] && break; sleep 0.1; done
kill -INT -- -$!; wait $!; code=$?; cat /tmp/look; [ $code = 130 ] || (exit $code)
"""
START: Final = """
set -m; {{ {command}
}} > /tmp/service-{number} 2>&1 & set +m; service_{number}=$!
for _ in $(seq 600); do
  grep -q '^{ready}' /tmp/service-{number} && break; kill -0 $service_{number} || break; sleep 0.1
done
cat /tmp/service-{number}; grep -q '^{ready}' /tmp/service-{number}
"""
INTERRUPT: Final = """
before=$(wc -c < /tmp/service-{number})
kill -INT -- -$service_{number}; wait $service_{number}; code=$?
tail -c +$((before + 1)) /tmp/service-{number}; (exit $code)
"""


class GuideReader:
    def __init__(self, shell: Shell, page: pathlib.Path) -> None:
        self._page = page
        self._shell = shell
        self._services: list[str] = []
        self._said = ""
        self._seen = ""

    def read(self) -> None:
        blocks = blocks_of(self._page)
        for block in blocks:
            for command in (block.notes[note] for note in ("needs", "prepare") if note in block.notes):
                for part in command.split(" && "):
                    self._type(part, block)
            if "not run" not in block.notes:
                {
                    "sh": self._run,
                    "": self._compare,
                    "yaml": self._check,
                    "python": self._edit,
                    "sql": self._query,
                }[block.kind](block)

    def check(self, command: str) -> None:
        """Something that the page does not say, where it was read."""
        ended, said = self._shell.type(command)
        assert ended == 0, f"{self._page.name}: `{command}` ended with {ended}:\n{said}"

    def _run(self, block: Block) -> None:
        said = []
        *first, last = commands_of(block.text)
        for command in first:
            said.append(self._type(command, block))
        said.append(self._type(last, block, code=int(block.notes.get("exit", "0"))))
        self._said = "".join(said)

    def _type(self, command: str, block: Block, *, code: int = 0) -> str:
        command = self._copied(command, block)
        words = command.partition(" #")[0].strip()
        typed = command
        if SERVICE.search(words) and not _PRINTS.search(words):
            self._services.append(words)
            typed = START.format(command=command, number=len(self._services), ready=READY)
        elif FOLLOWER.search(words):
            typed = LOOK.format(command=command)
        ended, said = self._shell.type(typed)
        self._seen += said
        assert ended == code, f"{self._where(block)}: `{command}` ended with {ended}, not {code}:\n{said}"
        return said

    def _copied(self, command: str, block: Block) -> str:
        """What a guide writes with `…`, such as `tok-…`, a reader copies from the last line that has it."""

        def seen(word: re.Match[str]) -> str:
            like = re.compile(re.escape(word[0]).replace("…", r"[^\s'\"]+"))
            found = [match[0] for line in self._seen.splitlines() if (match := like.search(line))]
            assert found, f"{self._where(block)}: nothing like {word[0]} was printed:\n{self._seen[-2000:]}"
            return found[-1]

        return re.sub(r"[\w.:/#-]+…", seen, command)

    def _compare(self, block: Block) -> None:
        """Each line of what the page shows is there, in this order."""
        if "Ctrl-C" in block.notes:
            number = self._services.index(block.notes["Ctrl-C"]) + 1
            ended, self._said = self._shell.type(INTERRUPT.format(number=number))
            assert ended in (0, 130), f"{self._where(block)}: {self._said}"
        varying = set(block.notes.get("varies", "").split())
        at = 0
        for line in filter(str.strip, block.text.splitlines()):
            words = [
                r"\S+" if word in varying else re.escape(word).replace("…", ".*") for word in line.split()
            ]
            found = re.compile(r"\s+".join(words)).search(self._said, at)
            assert found, f"{self._where(block)}: {line!r} was not said:\n{self._said}"
            at = found.end()

    def _check(self, block: Block) -> None:
        document = yaml.safe_load(block.text)
        kind = block.notes.get("part of") or document.get("format", "group").removeprefix("corral-")
        if kind == "group":
            whole = document if "name" in document else {"name": "example", "command": ["true"], **document}
            check_group(msgspec.convert(whole, GroupSpec))
            return
        head = {"format": f"corral-{kind}", "version": 1}
        text = yaml.safe_dump({**head, **document})
        self._type(f"cat > /tmp/checked.yaml <<'EOF'\n{text}EOF", block)
        self._type(f"{PROJECT}/.venv/bin/corral {kind} --config /tmp/checked.yaml --print-config", block)

    def _edit(self, block: Block) -> None:
        name, _, place = block.notes["into"].partition(", ")
        where, _, line = place.partition(": ")
        _, text = self._shell.type(f"cat {name}")
        if where == "at the end":
            changed = f"{text.rstrip()}\n\n\n{block.text}"
        else:
            (marked,) = [each for each in text.splitlines() if line in each]
            pieces = (block.text, marked) if where == "above" else (marked, block.text)
            changed = text.replace(f"{marked}\n", "\n".join(each.rstrip("\n") for each in pieces) + "\n", 1)
        self._type(f"cat > {name} <<'END-OF-FILE'\n{changed}\nEND-OF-FILE", block)

    def _query(self, block: Block) -> None:
        self._type(f"psql -q -v ON_ERROR_STOP=1 <<'EOF'\n{block.text}EOF", block)

    def _where(self, block: Block) -> str:
        return f"{self._page.relative_to(PROJECT)}:{block.line}"
