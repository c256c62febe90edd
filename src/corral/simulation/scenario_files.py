"""Scenario files: their text, and what is wrong in them with file, line and path."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from corral.errors import Code, Rejected, counted
from corral.simulation.field_reader import MOST_FAULTS_SHOWN, Path, ScenarioFaults, ScenarioField
from corral.simulation.scenario import Scenario
from corral.simulation.scenario_groups import GroupFault, check_groups
from corral.simulation.scenario_reader import ScenarioReader
from corral.system.document_limits import MOST_BYTES, MalformedDocument, ValueTally
from corral.system.document_sets import bodies_in, shown_file


class ScenarioRejected(Rejected):
    """A scenario file cannot be used; `lines` has each fault with its file, line and path."""

    def __init__(self, message: str, lines: Sequence[str], *, hint: str) -> None:
        super().__init__(Code.INVALID_FIELD, message, hint=hint)
        self.lines = tuple(lines)


def read_scenario(path: str) -> Scenario:
    """The scenario of a file ('-': stdin). ScenarioRejected has everything that is wrong with it."""
    try:
        text = _content(path).decode("utf-8")
        return scenario_in(text, file=path)
    except OSError as error:
        raise ScenarioRejected(
            f"cannot read {shown_file(path)}: {error.strerror}", (), hint="give the path of a scenario file"
        ) from error
    except UnicodeDecodeError:
        raise ScenarioRejected(
            f"{shown_file(path)} is not text in UTF-8", (), hint="save it as such"
        ) from None


def _content(path: str) -> bytes:
    if path == "-":
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with pathlib.Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        limit = f"it has more than {MOST_BYTES >> 20} MiB"
        raise ScenarioRejected(f"{shown_file(path)}: {limit}", (), hint="record fewer changes")
    return content


def scenario_in(text: str, *, file: str) -> Scenario:
    """The scenario of a text; `file`: its name, to which the paths of group files are relative."""
    try:
        documents = bodies_in(file, text, ValueTally())
    except MalformedDocument as error:
        message = f"{shown_file(file, error.line)}: {error}"
        raise ScenarioRejected(message, (), hint="correct the file") from None
    if len(documents) != 1:
        message = f"{shown_file(file)} has {counted(len(documents), 'document')}: a scenario is one"
        raise ScenarioRejected(message, (), hint="write run, nodes and groups into one document")
    faults = ScenarioFaults()
    top = ScenarioField(documents[0].body, (), faults)
    scenario = ScenarioReader(file).read(top)
    whole = not any(each.path[:1] == ("groups",) for each in faults.found)
    wrong = check_groups(scenario, whole=whole).faults
    if faults.found or wrong:
        raise _rejected(file, text, faults, wrong)
    return scenario


def _rejected(file: str, text: str, faults: ScenarioFaults, groups: Sequence[GroupFault]) -> ScenarioRejected:
    line_of = _Lines(text)
    for fault in groups:  # those of group files follow, with their own lines
        if fault.document is None or not fault.document.file:
            faults.add(*_within(fault))
    lines = []
    for each in faults.found:
        path = each.shown_path
        place = shown_file(file, line_of.find(each.path))
        lines.append(f"{place}: {path}: {each.message}" if path else f"{place}: {each.message}")
    elsewhere = [each for each in groups if each.document is not None and each.document.file]
    lines += [_in_file(each) for each in elsewhere[:MOST_FAULTS_SHOWN]]
    left_out = faults.left_out + max(0, len(elsewhere) - MOST_FAULTS_SHOWN)
    if left_out:
        lines.append(f"and {counted(left_out, 'more error')}")
    count = len(faults.found) + faults.left_out + len(elsewhere)
    return ScenarioRejected(
        f"{counted(count, 'error')} in {shown_file(file)}",
        lines,
        hint="correct what is listed; docs/reference/scenario.yaml has every key",
    )


def _within(fault: GroupFault) -> tuple[Path, str]:
    """The path of a fault in the scenario itself, and its text without the field."""
    start = fault.document.path if fault.document is not None else fault.path
    steps = tuple(fault.field.split("/")) if fault.field else ()
    return (*start, *steps), fault.message.removeprefix(f"{fault.field}: ")


def _in_file(fault: GroupFault) -> str:
    """A fault of a group file, as `corral apply` shows it."""
    document = fault.document
    assert document is not None
    line = document.lines.get(fault.field.partition("/")[0])
    place = shown_file(document.file, line) if line else document.place
    named = (
        not fault.field or fault.message.startswith(f"{fault.field}:") or f"'{fault.field}'" in fault.message
    )
    return f"{place}: {fault.message}" if named else f"{place}: {fault.field}: {fault.message}"


class _Lines:
    """The lines of the values of a text that was read before."""

    def __init__(self, text: str) -> None:
        import yaml

        try:
            self._root: Any = yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:  # JSON that is no YAML
            self._root = None

    def find(self, path: Sequence[str | int]) -> int:
        """The line of a path, or of what is nearest above it; 0: not known."""
        here, line = self._root, 1 if self._root is not None else 0
        for step in path:
            found = _step(here, step)
            if found is None:
                break
            here, line = found
        return line


def _step(node: Any, step: str | int) -> tuple[Any, int] | None:
    """A value within another, and its line."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line + 1
    return None
