"""Result of an import: a line a field for people, one object for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.apply_output import show_changes
from corral.cli.failure import CommandFailure, printable
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.output import show_done
from corral.cli.terminal.values import size_text
from corral.cli.universe.import_plan import DATA_DIRECTORY, ImportPlan, StaticCopy
from corral.cli.universe.template_trees import TemplateUpload
from corral.cli.universe.worlds import NODES, CopiedWorld
from corral.domain.universe.field_reports import FieldAction, FieldReport
from corral.errors import counted

_SIGNS: Final = {"created": "+", "changed": "~"}
_ROLES: Final = {"controller": "corral controller", "daemon": "corral daemon"}


class ImportResult(NamedTuple):
    dry_run: bool
    plan: ImportPlan
    templates: list[TemplateUpload]
    answer: Any
    """Of the API to the set of groups; None: there are none."""
    tokens: list[dict[str, Any]]
    worlds: list[CopiedWorld]
    """Static directories that were copied to a node, or in a dry run would be."""

    def summary(self) -> str:
        parts = [str(self.answer["summary"]) if self.answer else "0 groups"]
        for kind, actions in (
            ("template", [each.action for each in self.templates]),
            ("token", [str(each["action"]) for each in self.tokens]),
        ):
            if actions:
                parts.append(f"{counted(len(actions), kind)}, {_counts(actions)}")
        if self.worlds:
            copied = [each for each in self.worlds if not each.runs]
            parts.append(f"{counted(len(copied), 'world')} copied")
        text = "; ".join(parts)
        return f"{text} (dry run: nothing was written)" if self.dry_run else text

    def document(self) -> dict[str, Any]:
        """The stable form for programs."""
        return {
            "dry_run": self.dry_run,
            "summary": self.summary(),
            "fields": [msgspec.to_builtins(each) for each in self.fields()],
            "templates": [
                {
                    "name": each.tree.source.name,
                    "source": each.tree.source.source,
                    "action": each.action,
                    "files": len(each.tree.files),
                    "size": each.tree.size,
                }
                for each in self.templates
            ],
            "apply": self.answer,
            "static": [self._static(each) for each in self.plan.copies if each.group],
            "settings": {"controller": self.plan.controller, "daemon": self.plan.daemon},
            "commands": self.plan.commands,
            "tokens": self.tokens,
        }

    def fields(self) -> list[FieldReport]:
        """The reports of the plan; that of a static directory that is copied names its node."""
        nodes = {each.source: each.node for each in self.worlds}
        return [
            msgspec.structs.replace(each, note=f"copied to node {nodes[each.file]}")
            if each.file in nodes
            else each
            for each in self.plan.reports
        ]

    def to_copy(self) -> list[StaticCopy]:
        """The static directories that are left to the operator."""
        done = {each.source for each in self.worlds}
        return [each for each in self.plan.copies if each.group and each.source not in done]

    def _static(self, copy: StaticCopy) -> dict[str, Any]:
        """Its `copied`: null where it is left to the operator."""
        shown = {name: value for name, value in copy._asdict().items() if name != "path"}
        world = next((each for each in self.worlds if each.source == copy.source), None)
        return {**shown, "copied": world._asdict() if world is not None else None}


def _counts(actions: Iterable[str]) -> str:
    counts = Counter(action for action in actions if action != "unchanged")
    return ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing changed"


def show_result(session: ApiSession, result: ImportResult) -> None:
    if session.output != "table":
        show_done(session.output, result.document(), "", name="summary")
        return
    _show_fields(result.fields())
    for each in result.templates:
        if each.action != "unchanged":
            size = f"{counted(len(each.tree.files), 'file')}, {size_text(each.tree.size)}"
            _say(
                f"{_SIGNS[each.action]} template {each.tree.source.name}  ({each.tree.source.source}: {size})"
            )
    if result.answer:
        show_changes(result.answer)
    for world in result.worlds:
        if world.runs:
            continue
        done = f"{_SIGNS['created']} world {world.instance} on {world.node}  ({world.source}"
        _say(f"{done})" if result.dry_run else f"{done}: {world.sentence()})")
        if not result.dry_run and not world.started:
            _say(f"  it is stopped; start it with: corral instance restart {world.instance}")
    _show_copies(session, result.to_copy(), result)
    _show_settings({"controller": result.plan.controller, "daemon": result.plan.daemon})
    if result.plan.commands:
        _say("commands that do what settings of the node did, once it is enrolled:")
        for command in result.plan.commands:
            _say(f"  {command}")
    _show_tokens(result.tokens, dry_run=result.dry_run)
    _say(result.summary())


def _say(text: str) -> None:
    click.echo(printable(text))


def _show_fields(reports: Sequence[FieldReport]) -> None:
    """By file, with the fields of one below it; then those entries of the folder that have none."""
    for file in dict.fromkeys(each.file for each in reports if each.field):
        found = [each for each in reports if each.file == file and each.field]
        _say(file)
        _show_rows([(each.field, each) for each in found], indent="  ")
    _show_rows([(each.file, each) for each in reports if not each.field], indent="")
    click.echo()


def _show_rows(rows: Sequence[tuple[str, FieldReport]], *, indent: str) -> None:
    width = max((len(title) for title, _ in rows), default=0)
    for title, each in rows:
        _say(f"{indent}{title:<{width}}  {each.action:<7}  {_outcome(each)}".rstrip())


def _outcome(report: FieldReport) -> str:
    if report.action is FieldAction.DROPPED:
        return f"{report.note}; instead: {report.to}" if report.to else report.note
    to = f"{'to' if report.action is FieldAction.MAPPED else 'as'} {report.to}"
    return f"{to}: {report.note}" if report.note else to


def _show_copies(session: ApiSession, copies: Sequence[StaticCopy], result: ImportResult) -> None:
    """Before its group exists a directory can be copied at once; later only while nothing uses it."""
    if not copies:
        return
    groups = result.answer["groups"] if result.answer else ()
    created = {each["name"] for each in groups if each["action"] == "created"} if result.dry_run else ()
    _say(
        "static directories are not copied without --node; otherwise do it on the node that shall have them:"
    )
    if any(each.group not in created for each in copies):
        _say("  Where a world was played on already, these commands put its files back to those of Universe;")
        _say("  --node keeps what differs, and says so.")
    _say(f"  DATA={DATA_DIRECTORY}  # or what 'data' of that daemon is")
    for group in dict.fromkeys(each.group for each in copies):
        held = group not in created
        if held:
            _say(f"  corral group hold {group} --reason 'its directories are copied' --yes --wait")
        for each in copies:
            if each.group == group:
                _say(
                    f"  {each.command}{_where(session, each, result)}{'' if held else '  # before the import'}"
                )
        if held:
            _say(f"  corral group release {group}")
    _warn_of_other_nodes(session, [each for each in copies if each.group in created and not each.nodes])


def _where(session: ApiSession, copy: StaticCopy, result: ImportResult) -> str:
    """The node of a copy, as a comment: that of the configuration, the one that the instance has, or where it would
    start now."""
    if copy.nodes:
        return f"  # on {' or '.join(copy.nodes)}"
    decisions = result.answer["decisions"] if result.answer else ()
    chosen = next(
        (str(each["node"]) for each in decisions if each["instance"] == copy.instance and each["node"]), ""
    )
    if chosen:
        return f"  # on {chosen}, where it would start"
    try:
        found = session.client.get(f"{INSTANCES}/{segment(copy.instance)}")
    except CommandFailure:
        return ""  # it was never started
    return f"  # on {found['node']}, where it is" if found.get("node") else ""


def _warn_of_other_nodes(session: ApiSession, copies: Sequence[StaticCopy]) -> None:
    """A first start on another node than that of the copy makes an empty directory, and stays there."""
    if copies and len(session.client.pages(NODES)) > 1:
        ids = ", ".join(each.instance for each in copies)
        _say(
            f"  # {ids}: several nodes could take {'it' if len(copies) == 1 else 'them'}; write the node of the copy into "
            "'nodes' of the configuration first, or it may start elsewhere, with an empty directory, and stay there"
        )


def _show_settings(settings: Mapping[str, dict[str, Any]]) -> None:
    import yaml

    for role, values in settings.items():
        if values:
            _say(f"settings for the file of '{_ROLES[role]} --config FILE':")
            document = {"format": f"corral-{role}", "version": 1, **values}
            for line in yaml.safe_dump(document, sort_keys=False, allow_unicode=True).splitlines():
                _say(f"  {line}")


def _show_tokens(tokens: Sequence[Mapping[str, Any]], *, dry_run: bool) -> None:
    for each in tokens:
        name = f"token '{each['name']}' ({each['role']})"
        if each["action"] == "unchanged":
            _say(f"{name} is there already; its text was shown when it was made")
        elif each["action"] == "skipped":
            command = f"corral token create {each['name']} --role {each['role']}"
            _say(f"{name} is left to somebody who may make tokens: {command}")
        elif dry_run:
            _say(f"+ {name}")
        else:
            _say(f"+ {name}, shown this once: {each['token']}")
